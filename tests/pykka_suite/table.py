"""Pykka's tests that do not use the actors of this project, and those that fail on the thread of an event loop.

On another thread all of them pass, on every dispatcher.
"""

from __future__ import annotations

TESTS = 152
USING_OUR_ACTORS = 137

NOT_ABOUT_OUR_ACTORS = {
    "it tests pykka's own classes": (
        "proxy/test_traversable.py::test_traversable_cannot_mark_object_using_slots",
        "test_envelope.py::test_envelope_repr",
        "test_future.py::test_base_future_get_is_not_implemented",
        "test_future.py::test_base_future_set_is_not_implemented",
        "test_future.py::test_base_future_set_exception_is_not_implemented",
        "test_logging.py::test_null_handler_is_added_to_avoid_warnings",
        "test_messages.py::test_actor_stop",
        "test_messages.py::test_proxy_call",
        "test_messages.py::test_proxy_get_attr",
        "test_messages.py::test_proxy_set_attr",
    ),
    "it tests the threads of pykka's ThreadingActor; actors of this project have none": (
        "test_threading_actor.py::test_actor_thread_is_named_after_pykka_actor_class",
        "test_threading_actor.py::test_actor_thread_is_not_daemonic_by_default",
        "test_threading_actor.py::test_actor_thread_is_daemonic_if_use_daemon_thread_flag_is_set",
    ),
    "it tests the registry of this project without an actor": (
        "test_registry.py::test_stop_all_stops_last_started_actor_first_if_blocking",
        "test_registry.py::test_get_by_urn_returns_none_if_not_found",
    ),
}

WAITS = "WouldDeadlock: a blocking wait on the actors' own thread"

# The reason, the error, and the tests.
NOT_ON_THE_LOOPS_THREAD: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "it blocks in ask(): await ref.ask(..., block=False)",
        WAITS,
        (
            "test_actor.py::test_actor_can_call_stop_on_self_multiple_times",
            "test_actor.py::test_actor_processes_all_messages_before_stop_on_self_stops_it",
            "test_logging.py::test_unexpected_messages_are_logged",
            "test_ref.py::test_ask_blocks_until_response_arrives",
            "test_ref.py::test_ask_can_timeout_if_blocked_too_long",
        ),
    ),
    (
        "it blocks in get() of a reply: await the reply",
        WAITS,
        (
            "proxy/test_attribute_access.py::test_attr_can_be_read_using_get_postfix",
            "proxy/test_attribute_access.py::test_attr_can_be_set_using_assignment",
            "proxy/test_attribute_access.py::test_property_can_be_read_using_get_postfix",
            "proxy/test_dynamic_method_calls.py::test_can_call_method_that_was_added_at_runtime",
            "proxy/test_dynamic_method_calls.py::test_can_proxy_itself_and_use_attrs_added_at_runtime",
            "proxy/test_mocking.py::test_actor_with_mocked_method_works",
            "proxy/test_mocking.py::test_actor_with_noncallable_mock_property_works",
            "proxy/test_proxy.py::test_refs_proxy_method_returns_a_proxy",
            "proxy/test_static_method_calls.py::test_can_proxy_itself_for_offloading_work_to_the_future",
            "proxy/test_static_method_calls.py::test_functional_method_call_returns_correct_value",
            "proxy/test_static_method_calls.py::test_side_effect_of_deferred_method_call_is_observable",
            "proxy/test_static_method_calls.py::test_side_effect_of_method_call_is_observable",
            "proxy/test_traversable.py::test_attr_of_traversable_attr_can_be_read",
            "proxy/test_traversable.py::test_traversable_object_returned_from_property_is_not_traversed",
            "proxy/test_typed_proxy.py::test_proxy_field",
            "proxy/test_typed_proxy.py::test_proxy_method",
            "proxy/test_typed_proxy.py::test_proxy_to_actor_methods",
            "proxy/test_typed_proxy.py::test_proxy_traversable_object_field",
            "test_actor.py::test_messages_left_in_queue_after_actor_stops_receive_an_error",
            "test_actor.py::test_stop_requests_left_in_queue_after_actor_stops_are_handled",
            "test_ref.py::test_ask_can_return_future_instead_of_blocking",
            "test_ref.py::test_tell_accepts_any_object_as_the_message",
            "test_ref.py::test_tell_delivers_message_to_actors_custom_on_receive",
            "test_registry.py::test_broadcast_sends_message_to_all_actors_if_no_target",
            "test_registry.py::test_broadcast_sends_message_to_all_actors_of_given_class",
            "test_registry.py::test_broadcast_sends_message_to_all_actors_of_given_class_name",
        ),
    ),
    (
        "the same, and the test expects the error of the actor instead: await the reply",
        "AssertionError: Regex pattern did not match.",
        (
            "proxy/test_static_method_calls.py::test_exception_in_method_reraised_by_future",
            "test_logging.py::test_exception_is_logged_when_returned_to_caller",
        ),
    ),
    (
        "it checks with get(timeout=0) whether a reply is set: use done()",
        WAITS,
        (
            "test_future.py::test_filter_preserves_the_timeout_kwarg",
            "test_future.py::test_get_all_raises_timeout_if_not_all_futures_are_available",
            "test_future.py::test_join_preserves_timeout_kwarg",
            "test_future.py::test_map_preserves_timeout_kwarg",
            "test_future.py::test_reduce_preserves_the_timeout_kwarg",
        ),
    ),
    (
        "it sets an attribute through a proxy, for which pykka waits: call a method of the actor instead, and await it",
        WAITS,
        (
            "proxy/test_attribute_access.py::test_property_can_be_set_using_assignment",
            "proxy/test_attribute_access.py::test_read_only_property_cannot_be_set",
        ),
    ),
    (
        "it blocks in stop() or stop_all(): await ref.stop(block=False), await system.stop()",
        WAITS,
        (
            "proxy/test_attribute_access.py::test_property_is_not_accessed_when_creating_proxy",
            "proxy/test_proxy.py::test_actor_proxy_does_not_expose_proxy_to_self",
            "proxy/test_proxy.py::test_actor_ref_may_be_retrieved_from_proxy_if_actor_is_dead",
            "proxy/test_proxy.py::test_proxy_constructor_raises_exception_if_actor_is_dead",
            "test_actor.py::test_on_stop_is_called_when_actor_is_stopped",
            "test_ref.py::test_ask_fails_if_actor_is_stopped",
            "test_ref.py::test_ask_nonblocking_fails_future_if_actor_is_stopped",
            "test_ref.py::test_is_alive_returns_false_for_dead_actor",
            "test_ref.py::test_stop_does_not_stop_already_dead_actor",
            "test_ref.py::test_stop_returns_true_if_actor_is_stopped",
            "test_ref.py::test_tell_fails_if_actor_is_stopped",
            "test_registry.py::test_actor_is_unregistered_when_stopped",
            "test_registry.py::test_all_actors_can_be_stopped_through_registry",
        ),
    ),
    (
        "it blocks on a threading.Event that the actor has to set: use an asyncio.Event, or await a reply",
        WAITS,
        (
            "proxy/test_static_method_calls.py::test_exception_in_deferred_method_call_triggers_on_failure",
            "test_actor.py::test_actor_is_stopped_when_unhandled_exceptions_are_raised",
            "test_actor.py::test_all_actors_are_stopped_on_base_exception",
            "test_actor.py::test_on_failure_failure_causes_actor_to_stop",
            "test_actor.py::test_on_failure_is_called_when_exception_cannot_be_returned",
            "test_actor.py::test_on_start_can_stop_actor_before_receive_loop_is_started",
            "test_actor.py::test_on_start_failure_causes_actor_to_stop",
            "test_actor.py::test_on_stop_failure_causes_actor_to_stop",
            "test_logging.py::test_base_exception_is_logged",
            "test_logging.py::test_exception_in_on_failure_is_logged",
            "test_logging.py::test_exception_in_on_start_is_logged",
            "test_logging.py::test_exception_in_on_stop_is_logged",
            "test_logging.py::test_exception_is_logged_when_not_reply_requested",
        ),
    ),
    (
        "it runs its own event loop, and the thread already runs one",
        "RuntimeError: Cannot run the event loop while another loop is running",
        (
            "test_future.py::test_future_supports_await_syntax",
            "test_future.py::test_future_supports_yield_from_syntax",
        ),
    ),
)
