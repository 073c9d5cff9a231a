"""System: a dispatcher and the actors that live on it."""

from __future__ import annotations

from typing import Any

from ..actors.base import Actor, ActorRef, running_on
from .dispatcher import Dispatcher


class System:
    """Spawns actors, knows them all, stops them in the opposite order. It has a registry of its own."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def spawn(self, actor_class: type[Actor], *args: Any, **kwargs: Any) -> ActorRef:
        """Start an actor here. Arguments go to its constructor, on the caller's thread."""
        with running_on(self.dispatcher):
            ref: ActorRef = actor_class.start(*args, **kwargs)
        self.dispatcher.refs[ref] = None
        return ref

    def actors(self) -> list[Any]:
        """References to all that live, oldest first."""
        return list(self.dispatcher.refs)

    def stop_all(self) -> list[Any]:
        """Ask all to stop, youngest first; returns replies to await. What was sent before is handled before."""
        return [ref.stop(block=False) for ref in reversed(self.actors())]
