// Hide keys from queries: the weights are renormalised at once, and rows that see nothing are marked.

import { choice, fill, follow, frame, goals, make, reset, say, scale, sender, set, shade, show, softmax, unlike, wide, within } from "./shared.js";

const TEXT = {
  name: "Explorable: a mask and the weights under it",
  intro: "Press a cell to hide a ■ key from a ● query, and again to show it. A mouse can also drag over cells. An empty cell is visible.",
  presets: { all: "All visible", causal: "Causal", padding: "Padding", both: "Causal and padding", window: "Window", short: "Window and padding" },
  conventions: { boolean: "boolean", blocked: "blocked", additive: "additive" },
  about: {
    boolean: "True = may attend: mha_lab, F.scaled_dot_product_attention.",
    blocked: "True = hidden: torch.nn.MultiheadAttention.",
    additive: "added to the scores: 0 or minus infinity.",
  },
  nothing: { // measured with PyTorch 2.13
    boolean: "For a query that sees nothing, both give the output 0.",
    blocked: "For a query that sees nothing, it gives NaN, unless need_weights=False.",
    additive: "For a query that sees nothing, torch.softmax gives NaN.",
  },
  key: "■ key →", query: "● query ↓", hide: "hide {key} from {query}", mask: "Mask", weights: "Weights: a row sums to 1, or is all hidden",
  real: "real tokens", width: "window width", amount: "{label}, {min} to {n_k}", afterReal: " (0 to {n_k}), then padding", afterWidth: " (1 to {n_k})",
  code: "the mask as code", same: "the same mask as code", copy: "Copy", copied: "Copied", isCopied: "Copied.",
  selected: "Selected: now copy", isSelected: "The code is selected. Copy it with the keyboard.",
  aims: ["Leave a query only one key: which weight does it get?", "Hide every key from one query.", "Hide one key from all queries, as padding does."],
  hidden: "hidden", empty: "sees nothing", weight: "{key} {weight:2}", sees: "{query} sees {seen}.", seesNothing: "{query} sees nothing.",
  preset: "{preset}: {said}", andHidden: "{said} Hidden: {hidden}.",
};

/** The weights of each query over the keys that it may see. */
export function compute({ scores, mask }) {
  return scores.map((row, i) => softmax(row, mask[i]));
}

/** The masks behind the buttons, for n_q queries and n_k keys; the last query sees the last key. */
export function preset(name, n_q, n_k, real, width) {
  const offset = n_k - n_q;
  const causal = (i, j) => j <= i + offset;
  const padding = (i, j) => j < real;
  const window = (i, j) => causal(i, j) && j > i + offset - width; // as in the layer: itself and those before
  const rules = {
    all: () => true,
    causal,
    padding,
    both: (i, j) => causal(i, j) && padding(i, j),
    window,
    short: (i, j) => window(i, j) && padding(i, j),
  };
  return Array.from({ length: n_q }, (_, i) => Array.from({ length: n_k }, (_, j) => rules[name](i, j)));
}

/** The same mask as code, in one of the three conventions. */
export function code(mask, convention) {
  const entry = {
    boolean: (seen) => (seen ? "True" : "False"),
    blocked: (seen) => (seen ? "False" : "True"),
    additive: (seen) => (seen ? "0.0" : "-inf"),
  }[convention];
  return `${convention === "additive" ? 'inf = float("inf")\n' : ""}mask = torch.tensor([\n${mask.map((row) => `    [${row.map(entry).join(", ")}],`).join("\n")}\n])`;
}

// What a preset becomes when the number of real tokens, or the width of the window, is changed.
const PADDED = { causal: "both", both: "both", window: "short", short: "short" };
const WINDOWED = { padding: "short", both: "short", short: "short" };

// Visible cells are empty, hidden ones grey and hatched, as in every picture. Columns have one width, so that none moves under the pointer.
const LOOK = `
.mha-mask {
.grid { user-select: none; table-layout: fixed; width: max-content; max-width: none; } .grid caption { padding-bottom: 4px; }
.grid :is(th, td) { width: 50px; padding: 0; text-align: center; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } .grid th:first-child { width: 84px; text-align: left; line-height: 1.2; } .grid .note { display: block; font-size: 11px; }
.grid tbody tr { height: 46px; }
.grid .cell { width: 48px; min-width: 0; height: 44px; margin: 1px; padding: 0; border: 1px solid var(--line); border-radius: 0; font-size: 12px; display: block; }
.weight { border: 1px solid var(--ground); } pre { white-space: pre-wrap; } .said { min-height: 1.4em; }
.grid :is(button, td).hidden { border: 1px dashed var(--line); font-weight: 400; background: repeating-linear-gradient(135deg, var(--line) 0 1px, var(--ground) 1px 7px); font-size: 11px; } .grid .hidden span { background: var(--ground); padding: 0 1px; }
@container mha (width < 640px) { .grid th:first-child { width: 72px; } }
@container mha (width >= 640px) { .grid tbody tr { height: 36px; } .grid .cell { height: 34px; } }
@media (pointer: coarse) { .grid .cell { height: 44px; } }
}`;

function render({ model, el }) {
  const scores = model.get("_scores");
  const queries = model.get("_query_labels");
  const keys = model.get("_key_labels");
  const [toldQueries, toldKeys] = [queries, keys].map(unlike);
  const [n_q, n_k] = [scores.length, scores[0].length];
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  root.classList.add("mha-mask");
  const state = () => ({ scores, mask: model.get("_mask") });
  let { tokens, reach, convention = "boolean" } = model.get("_chosen") ?? {}; // as the fields were left
  let at = [0, 0];
  let brush = null; // while a pointer is down: what it paints

  const grid = (caption, cells) => wide(make("table", { class: "grid" },
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "note" }, TEXT.key), make("span", { class: "note" }, TEXT.query)), ...keys.map((key) => make("th", { scope: "col" }, key)))),
    make("tbody", {}, ...cells.map((row, i) => make("tr", {}, make("th", { scope: "row" }, queries[i], row.note ?? null), ...row.cells)))));

  // A mouse drags over the cells. A finger taps them, and its swipe scrolls the page.
  const switches = scores.map((_, i) => ({
    cells: keys.map((_, j) => {
      let painted = false; // by the press that ends in this click
      const button = make("button", {
        type: "button", class: "cell", tabindex: -1, "aria-label": fill(TEXT.hide, { key: toldKeys[j], query: toldQueries[i] }),
        onpointerdown: (event) => {
          painted = event.pointerType !== "touch" && event.button === 0;
          if (!painted) return;
          event.preventDefault();
          button.releasePointerCapture?.(event.pointerId);
          brush = !state().mask[i][j];
          go(i, j);
          sweep(i, j);
        },
        onpointerenter: () => { if (brush !== null) sweep(i, j); },
        onclick: () => { // a finger, Space, Enter, a screen reader
          if (!painted) paint(i, j, !state().mask[i][j]);
          painted = false;
        },
        onfocus: () => { at = [i, j]; },
      }, make("span"));
      return make("td", {}, button);
    }),
  }));
  const buttons = switches.map((row) => row.cells.map((cell) => cell.firstChild));
  const results = scores.map(() => ({ cells: keys.map(() => make("td", { class: "weight" }, make("span"))), note: make("span", { class: "note" }) }));
  const up = () => {
    if (brush !== null) tell();
    brush = null;
  };
  document.addEventListener("pointerup", up);

  document.addEventListener("pointercancel", up);

  const left = grid(TEXT.mask, switches);
  left.addEventListener("keydown", (event) => {
    const rows = event.ctrlKey ? n_q : 0; // with Ctrl: to the first or last cell of all
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [-rows, -n_k], End: [rows, n_k] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go(Math.min(n_q - 1, Math.max(0, at[0] + step[0])), Math.min(n_k - 1, Math.max(0, at[1] + step[1])));
  });

  const note = make("p", { class: "said", role: "status" });
  let active = null; // the preset that the mask is
  let last = ""; // the button pressed last
  const behind = (name, reach = width.used) => preset(name, n_q, n_k, real.used, reach);
  const same = (name, reach) => JSON.stringify(behind(name, reach)) === JSON.stringify(state().mask);
  const press = (name) => {
    last = name;
    send({ _mask: behind(name), _chosen: chosen() });
    draw();
    tell(n_q - 1, TEXT.presets[name]); // the last query, whose row differs from preset to preset
  };
  const chosen = () => ({ tokens: real.used, reach: width.used, convention });
  /** A field for a number. A mask is made as soon as the number is one that can be used, as with a mouse wheel. */
  const amount = (label, min, value, name) => {
    const take = (number) => {
      if (number === field.used) return;
      field.used = number;
      press(name());
    };
    const field = make("input", { type: "number", min, max: n_k, value, "aria-label": fill(TEXT.amount, { label, min, n_k }), oninput: () => {
      say(note, "");
      if (field.value !== "" && field.validity.valid) take(field.valueAsNumber);
    }, onchange: () => take(within(field, field.used, note, label)) });
    field.used = value;
    return field;
  };
  const real = amount(TEXT.real, 0, tokens ?? Math.max(1, n_k - 2), () => PADDED[active] ?? "padding");
  const given = keys.findIndex((_, j) => j + 1 < n_k && same("window", j + 1)) + 1; // 0 if the mask is no window
  const width = amount(TEXT.width, 1, reach ?? (given || Math.min(2, n_k)), () => WINDOWED[active] ?? "window");
  const presets = Object.entries(TEXT.presets).map(([name, text]) => make("button", { type: "button", onclick: () => press(name) }, text));
  const shown = make("pre", { tabindex: 0, "aria-label": TEXT.code });
  const about = make("p");
  const copied = make("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      say(copied, TEXT.copied);
      speak(TEXT.isCopied);
    } catch {
      getSelection().selectAllChildren(shown);
      say(copied, TEXT.selected);
      speak(TEXT.isSelected);
    }
  } }, TEXT.copy);
  const conventions = choice(TEXT.same, Object.entries(TEXT.conventions), (name) => {
    convention = name;
    send({ _chosen: chosen() });
    draw();
  });

  const columns = (mask) => keys.map((_, j) => mask.map((row) => row[j]));
  const tries = goals([
    [TEXT.aims[0], ({ mask }) => mask.some((row) => row.filter(Boolean).length === 1)],
    [TEXT.aims[1], ({ mask }) => mask.some((row) => !row.some(Boolean))],
    [TEXT.aims[2], ({ mask }) => mask.flat().some(Boolean) && columns(mask).some((column) => !column.some(Boolean))],
  ], state());
  const again = reset(model, ["_mask", "_chosen"], send, () => {
    last = "";
    for (const input of [real, width]) input.value = input.used = Number(input.defaultValue);
    ({ convention = "boolean" } = model.get("_chosen") ?? {});
    say(note, "");
    tries.clear();
    draw();
    tell();
  });

  root.append(
    make("style", {}, LOOK),
    make("div", {}, ...presets, again),
    make("p", {}, `${TEXT.real} `, real, fill(TEXT.afterReal, { n_k })), make("p", {}, `${TEXT.width} `, width, fill(TEXT.afterWidth, { n_k })), note,
    make("p", {}, TEXT.intro),
    make("div", { class: "parts" }, left, grid(TEXT.weights, results)), scale(),
    tries.node, conventions.group, about, shown, copied);

  function go(i, j) {
    at = [i, j];
    buttons.flat().forEach((button) => set(button, { tabindex: -1 }));
    set(buttons[i][j], { tabindex: 0 });
    buttons[i][j].focus();
  }

  /** A fast mouse skips cells: all from the last one to this one are painted. */
  function sweep(i, j) {
    const [from, to] = [at, [i, j]];
    const steps = Math.max(1, ...to.map((x, c) => Math.abs(x - from[c])));
    for (let s = 0; s <= steps; s += 1) paint(...to.map((x, c) => Math.round(from[c] + ((x - from[c]) * s) / steps)), brush);
    at = to;
  }

  function paint(i, j, seen) {
    const { mask } = state();
    if (mask[i][j] === seen) return;
    send({ _mask: mask.map((row, r) => (r === i ? row.map((old, c) => (c === j ? seen : old)) : row)) });
    draw();
    if (brush === null) tell(i);
  }

  function draw() {
    const { mask } = state();
    const weights = compute({ scores, mask });
    mask.forEach((row, i) => {
      row.forEach((seen, j) => {
        set(buttons[i][j], { "aria-pressed": !seen, class: seen ? "cell" : "cell hidden" });
        say(buttons[i][j].firstChild, seen ? "" : TEXT.hidden);
        const cell = results[i].cells[j];
        set(cell, { class: seen ? "weight" : "weight hidden" });
        shade(cell, seen ? weights[i][j] : null);
        say(cell.firstChild, seen ? show(weights[i][j]) : TEXT.hidden);
      });
      say(results[i].note, row.some(Boolean) ? "" : TEXT.empty);
    });
    active = [last, ...Object.keys(TEXT.presets)].find((name) => name in TEXT.presets && same(name)) ?? null;
    Object.keys(TEXT.presets).forEach((name, k) => set(presets[k], { "aria-pressed": name === active }));
    conventions.pick(convention);
    say(about, (mask.some((row) => !row.some(Boolean)) ? [TEXT.about[convention], TEXT.nothing[convention]] : [TEXT.about[convention]]).join(" "));
    say(shown, code(mask, convention));
    say(copied, TEXT.copy);
    tries.look({ mask });
  }

  function tell(i = at[0], before = "") {
    const { mask } = state();
    const weights = compute({ scores, mask })[i];
    const seen = weights.map((weight, j) => fill(TEXT.weight, { key: toldKeys[j], weight })).filter((_, j) => mask[i][j]);
    const hidden = toldKeys.filter((_, j) => !mask[i][j]);
    const said = fill(seen.length ? TEXT.sees : TEXT.seesNothing, { query: toldQueries[i], seen: seen.join(", ") });
    const named = before ? fill(TEXT.preset, { preset: before, said }) : said;
    speak(hidden.length ? fill(TEXT.andHidden, { said: named, hidden: hidden.join(", ") }) : named);
  }

  set(buttons[0][0], { tabindex: 0 });
  draw();
  const stop = follow(model, ["_mask"], draw);
  return () => {
    document.removeEventListener("pointerup", up);
    document.removeEventListener("pointercancel", up);
    stop();
  };
}

export default { render };
