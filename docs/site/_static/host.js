// The explorables alive on a page without a kernel, and small things that the theme leaves open.
// Implements the front end of anywidget (anywidget.dev/en/afm) as far as a page without Python can.

"use strict";

(() => {
  const same = (a, b) => Object.is(a, b) || JSON.stringify(a) === JSON.stringify(b);

  /** What a widget's module reads, changes and listens to. What it saves or sends reaches nobody. */
  function makeModel(state) {
    const heard = new Map(); // event: callbacks
    const tell = (event, ...given) => [...(heard.get(event) ?? [])].forEach((callback) => callback(...given));
    const model = {
      get: (name) => state[name],
      set(name, value) {
        if (same(state[name], value)) return;
        state[name] = value;
        tell(`change:${name}`, model, value, {});
        tell("change", model, {});
      },
      on(events, callback) {
        for (const event of events.split(/\s+/)) heard.set(event, [...(heard.get(event) ?? []), callback]);
      },
      off(events = null, callback = null) {
        for (const event of events?.split(/\s+/) ?? [...heard.keys()]) {
          const kept = (heard.get(event) ?? []).filter((other) => callback !== null && other !== callback);
          heard.set(event, kept);
        }
      },
      save_changes() {},
      send() {},
    };
    return model;
  }

  const imported = {};

  /** The module's default export. It is imported from a text, since over file:// no other import is allowed. */
  function load(name) {
    imported[name] ??= (async () => {
      const text = globalThis.explorableModules[name];
      const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      try {
        return (await import(url)).default;
      } finally {
        URL.revokeObjectURL(url);
      }
    })();
    return imported[name];
  }

  /** Put the live explorable in the place of its picture. Where anything fails, the picture stays. */
  async function start(container) {
    const { module, state } = JSON.parse(container.querySelector("script").textContent);
    const model = makeModel(state);
    const stopped = new AbortController();
    const given = { model, signal: stopped.signal, experimental: { invoke: () => Promise.reject(new Error("no kernel")) } };
    const el = document.createElement("div");
    el.className = "live";
    container.append(el);
    const ends = [];
    const stop = () => {
      stopped.abort();
      ends.splice(0).reverse().forEach((end) => typeof end === "function" && end());
      el.remove();
      container.classList.remove("alive");
    };
    try {
      const exported = await load(module);
      const widget = typeof exported === "function" ? await exported() : exported;
      container.classList.add("alive");
      ends.push(await widget.initialize?.(given));
      ends.push(await widget.render?.({ ...given, el }));
      container.explorable = { model, stop };
    } catch (error) {
      stop();
      console.error(`explorable ${module}:`, error);
    }
  }

  // What is scrolled sideways can be scrolled with the keyboard, too; the theme does this for code and tables.
  const reach = () => {
    for (const box of document.querySelectorAll(".formula, .explorable .live div")) {
      const wide = box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible";
      if (wide && box.tabIndex < 0 && !box.querySelector("button, input, [tabindex]")) {
        box.tabIndex = 0;
        box.dataset.reached = "";
      } else if (!wide && "reached" in box.dataset) {
        box.removeAttribute("tabindex");
        delete box.dataset.reached;
      }
    }
  };
  addEventListener("resize", reach);

  const explorables = [...document.querySelectorAll(".explorable")];
  Promise.all([document.fonts.ready, ...explorables.map(start)]).then(reach);
  addEventListener("pagehide", (event) => {
    if (!event.persisted) explorables.forEach((container) => container.explorable?.stop());
  });

  // Dark ink on white paper, whatever the screen shows.
  const root = document.documentElement;
  let screen = null;
  matchMedia("print").addEventListener("change", ({ matches }) => {
    if (matches) screen = root.dataset.theme;
    root.dataset.theme = matches ? "light" : screen;
  });

  // Over file:// no page may be fetched; the search then shows titles without excerpts.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }
})();
