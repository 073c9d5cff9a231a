"use strict";
// Keeps a page up to date: the server sends it again whenever it has changed. Without this file all else works.
(() => {
  const main = document.querySelector("main[data-live]");
  const button = document.getElementById("live");
  if (!main || !window.EventSource) return;

  const POLL_MS = 5000;
  const STREAM_MS = 5000;
  let source = null;
  let waiting = null;
  let timer = null;
  let paused = false;

  const options = {
    morphStyle: "innerHTML",
    ignoreActiveValue: true,
    callbacks: {
      // What the reader has opened, ticked or typed stays as it is.
      beforeNodeMorphed: (node) => !["FORM", "INPUT"].includes(node.nodeName),
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.nodeName === "DETAILS"),
    },
  };

  // reason: why the page is not up to date, else "".
  const say = (text, reason = "") => {
    button.textContent = text;
    button.title = reason;
    button.classList.toggle("stale", reason !== "");
  };

  const merge = (html) => {
    clearTimeout(waiting);
    Idiomorph.morph(main, html, options);
    say("Live");
  };

  const stop = () => {
    if (source) source.close();
    clearTimeout(waiting);
    clearInterval(timer);
    source = timer = null;
  };

  const poll = async () => {
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      const text = await response.text();
      const found = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      if (!response.ok) throw new Error(found ? found.textContent.trim() : response.statusText);
      if (timer) merge(found.innerHTML);
    } catch (error) {
      if (timer) say("Not updated", error.message || "the server does not answer");
    }
  };

  // The server has too many streams, or something between does not pass them on.
  const startPolling = () => {
    stop();
    timer = setInterval(poll, POLL_MS);
    poll();
  };

  const start = () => {
    stop();
    if (paused || document.hidden) return;
    source = new EventSource(location.href);
    waiting = setTimeout(startPolling, STREAM_MS);
    source.addEventListener("page", (event) => merge(event.data));
    source.addEventListener("problem", (event) => {
      clearTimeout(waiting);
      say("Not updated", event.data || "the server does not answer");
    });
    source.addEventListener("error", () => {
      if (!source) return;
      clearTimeout(waiting);
      // The server ends a stream from time to time, and the browser connects again.
      if (source.readyState === EventSource.CLOSED) startPolling();
      else waiting = setTimeout(startPolling, STREAM_MS);
    });
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    say(paused ? "Paused" : "Live");
    start();
  });
  // Browsers allow few connections to a server, so pages that nobody sees have none.
  document.addEventListener("visibilitychange", start);
  start();
})();
