// The explorables alive on a page without a kernel, and small things that the theme leaves open.

"use strict";

(() => {
  const folder = new URL("explorables/", document.currentScript.src);
  const asked = {}, imported = {};

  /** A text of the site, when it is used. It comes as a script, since over file:// nothing else may be asked for. */
  function text(name) {
    asked[name] ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = new URL(`${name}.js`, folder);
      script.onload = () => done(globalThis.explorables[name]);
      script.onerror = () => failed(new Error(`${name} is not there`));
      document.head.append(script);
    });
    return asked[name];
  }

  /** A module. It is imported from a text, since over file:// no other import is allowed. */
  function load(name) {
    imported[name] ??= (async () => {
      const [before, after] = (await text(name)).split("/* shared */"); // a page fetches it once
      const whole = after === undefined ? before : before + (await text("shared")) + after;
      const url = URL.createObjectURL(new Blob([whole], { type: "text/javascript" }));
      try {
        return await import(url);
      } finally {
        URL.revokeObjectURL(url);
      }
    })();
    return imported[name];
  }

  /** Put the live explorable in the place of its picture. Where anything fails, the picture stays. */
  async function start(container) {
    const { module, state } = JSON.parse(container.querySelector("script").textContent);
    const el = document.createElement("div");
    el.className = "live";
    container.append(el);
    const stop = () => {
      el.remove();
      container.classList.remove("alive");
    };
    try {
      for (const [key, value] of Object.entries(state)) if (value?.script) state[key] = await text(value.script);
      const [{ start: begin }, { default: exported }] = [await load("alone"), await load(module)];
      container.classList.add("alive");
      const begun = await begin(exported, state, el);
      container.explorable = { model: begun.model, stop: () => { begun.stop(); stop(); } };
    } catch (error) {
      stop();
      console.error(`explorable ${module}:`, error);
    }
  }

  // What is scrolled sideways can be scrolled with the keyboard, too; the theme does this for code and tables.
  // What goes on at a side says at which.
  const ALONE = ".pst-scrollable-table-container, .formula, .explorable.asked"; // they have no box around them
  const more = (box) => {
    const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
    const seen = box.matches(ALONE) ? box : box.parentElement;
    seen.dataset.more = `${box.scrollLeft > 1 ? "left" : ""} ${rest > 1 ? "right" : ""}`;
  };
  const boxes = [...document.querySelectorAll(`.highlight > pre, .picture > div, ${ALONE}`)];
  boxes.forEach((box) => box.addEventListener("scroll", () => more(box), { passive: true }));
  const reach = () => {
    boxes.forEach(more);
    for (const box of document.querySelectorAll(".formula, .picture > div, .explorable, .explorable .live div:not(.quiet)")) {
      const wide = box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX);
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

  // An explorable costs a page its weight only when it comes near; a heavy one, such as a model, only when it is used.
  const explorables = [...document.querySelectorAll(".explorable")];
  const wait = (container) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "start wake";
    button.textContent = "Start the live version";
    button.addEventListener("click", async () => {
      button.disabled = true; // a second press would start it twice
      await start(container);
      const alive = container.matches(".alive");
      if (alive) container.querySelector(".live :is(button, input, select, [tabindex='0'])")?.focus({ preventScroll: true });
      button.hidden = alive;
      button.disabled = false;
      reach();
    });
    container.prepend(button);
  };
  const near = new IntersectionObserver((seen) => {
    for (const { target } of seen.filter((each) => each.isIntersecting)) {
      near.unobserve(target);
      start(target).then(reach);
    }
  }, { rootMargin: "100%" });
  explorables.forEach((container) => (container.matches(".asked") ? wait(container) : near.observe(container)));
  document.fonts.ready.then(reach);
  addEventListener("pagehide", (event) => {
    if (!event.persisted) explorables.forEach((container) => container.explorable?.stop());
  });

  // Chapters that were read to their last section have a tick in the list. Only this browser knows it; where it
  // keeps nothing, as some do over file://, there are no ticks.
  const KEY = "mha_lab: visited chapters";
  const chapter = (url) => new URL(url).pathname.split("/").pop().replace(".html", "");
  const visited = () => {
    try {
      return Object(JSON.parse(localStorage.getItem(KEY)));
    } catch {
      return {};
    }
  };
  const keep = (chapters) => {
    try {
      if (chapters) localStorage.setItem(KEY, JSON.stringify(chapters));
      else localStorage.removeItem(KEY);
    } catch {
      // no ticks
    }
    tick();
  };
  const contents = document.querySelector(".bd-docs-nav");
  const forget = contents?.querySelector(".forget");
  const tick = () => {
    const chapters = visited();
    contents?.querySelectorAll(".visited").forEach((mark) => mark.remove());
    for (const link of contents?.querySelectorAll("a") ?? []) {
      const mark = '<span class="visited"><span aria-hidden="true"> ✓</span><span class="visually-hidden"> (visited)</span></span>';
      if (Object.hasOwn(chapters, chapter(link.href))) link.insertAdjacentHTML("beforeend", mark);
    }
    if (forget) forget.hidden = !contents.querySelector(".visited");
  };
  tick();
  addEventListener("pageshow", tick); // after "back"
  addEventListener("storage", tick); // another tab, or the page before this one, whose last word came late
  forget?.addEventListener("click", () => {
    keep(null);
    contents.querySelector("a").focus(); // the button is gone
  });
  const last = document.querySelector(".launch-link") && [...document.querySelectorAll(".bd-article h2")].pop();
  const reader = new IntersectionObserver((seen) => {
    if (!seen.some((heading) => heading.isIntersecting)) return;
    reader.disconnect();
    keep({ ...visited(), [chapter(location.href)]: true });
  });
  if (last) reader.observe(last);

  // How much of a chapter is above the foot of the window.
  const header = document.querySelector(".bd-header");
  const read = () => {
    const { top, height } = document.querySelector(".bd-article").getBoundingClientRect();
    header.style.setProperty("--read", Math.min(1, Math.max(0, (innerHeight - top) / height)).toFixed(3));
  };
  if (last) {
    for (const event of ["scroll", "resize"]) addEventListener(event, read, { passive: true });
    read();
  }

  // What answers a prediction waits behind a button, which says so itself.
  const answers = [...document.querySelectorAll("details")].filter((fold) =>
    fold.matches(".hide.below-input") || fold.querySelector("summary").textContent.startsWith("Compare"));
  answers.forEach((answer) => answer.querySelector("summary").removeAttribute("aria-label"));

  // On paper: dark ink on white, whatever the screen shows, and all open that a press opens.
  const root = document.documentElement, folds = [...document.querySelectorAll(".bd-article details")];
  let screen = null;
  const paper = (printed) => {
    if (printed === (screen !== null)) return;
    screen ??= { theme: root.dataset.theme, closed: folds.filter((fold) => !fold.open) };
    root.dataset.theme = printed ? "light" : screen.theme;
    screen.closed.forEach((fold) => { fold.open = printed; });
    if (!printed) screen = null;
  };
  // The event comes before the pages are counted: what opens later would push the end off the last of them.
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("print").addEventListener("change", ({ matches }) => paper(matches));

  // Over file:// no page may be fetched; the search then shows titles without excerpts.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }
})();
