// Hide keys from queries: the weights are renormalised at once, and rows that see nothing are marked.

import { choice, follow, frame, make, say, scale, sender, set, shade, show, softmax } from "./shared.js";

/** The weights of each query over the keys that it may see. */
export function compute({ scores, mask }) {
  return scores.map((row, i) => softmax(row, mask[i]));
}

/** The masks behind the buttons, for n_q queries and n_k keys; the last query sees the last key. */
export function preset(name, n_q, n_k, real, width) {
  const offset = n_k - n_q;
  const rules = {
    all: () => true,
    causal: (i, j) => j <= i + offset,
    padding: (i, j) => j < real,
    both: (i, j) => j <= i + offset && j < real,
    window: (i, j) => Math.abs(j - i - offset) < width,
  };
  return Array.from({ length: n_q }, (_, i) => Array.from({ length: n_k }, (_, j) => rules[name](i, j)));
}

/** The same mask as code, in one of the three conventions. */
export function code(mask, convention) {
  const entry = {
    boolean: (seen) => (seen ? "True" : "False"),
    blocked: (seen) => (seen ? "False" : "True"),
    additive: (seen) => (seen ? "0.0" : '-float("inf")'),
  }[convention];
  return `mask = torch.tensor([\n${mask.map((row) => `    [${row.map(entry).join(", ")}],`).join("\n")}\n])`;
}

const ABOUT = {
  boolean: "True = may attend: mha_lab, F.scaled_dot_product_attention",
  blocked: "True = hidden: torch.nn.MultiheadAttention",
  additive: "added to the scores: 0 or minus infinity",
};

function render({ model, el }) {
  const scores = model.get("_scores");
  const queries = model.get("_query_labels");
  const keys = model.get("_key_labels");
  const [n_q, n_k] = [scores.length, scores[0].length];
  const send = sender(model);
  const { root, speak } = frame(el, "Explorable: a mask and the weights under it");
  const state = () => ({ scores, mask: model.get("_mask") });
  let convention = "boolean";
  let at = [0, 0];
  let brush = null; // while a pointer is down: what it paints

  const grid = (caption, cells, role) => make("table", { role },
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "query"), ...keys.map((key) => make("th", { scope: "col" }, key)))),
    make("tbody", {}, ...cells.map((row, i) => make("tr", {}, make("th", { scope: "row" }, queries[i]), ...row.cells, row.note ?? null))));

  const switches = scores.map((_, i) => ({
    cells: keys.map((_, j) => {
      const button = make("button", {
        type: "button", class: "cell", tabindex: -1,
        onpointerdown: (event) => {
          event.preventDefault();
          button.releasePointerCapture?.(event.pointerId);
          brush = !state().mask[i][j];
          go(i, j);
          paint(i, j, brush);
        },
        onpointerenter: () => { if (brush !== null) paint(i, j, brush); },
        onclick: (event) => { if (event.detail === 0) paint(i, j, !state().mask[i][j]); }, // Space, Enter, a screen reader
        onfocus: () => { at = [i, j]; },
      });
      return make("td", {}, button);
    }),
  }));
  const buttons = switches.map((row) => row.cells.map((cell) => cell.firstChild));
  const results = scores.map(() => ({ cells: keys.map(() => make("td", { class: "weight" })), note: make("td", { class: "note" }) }));
  const up = () => {
    if (brush !== null) tell();
    brush = null;
  };
  document.addEventListener("pointerup", up);

  const left = grid("Mask: press or drag", switches);
  left.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    go(Math.min(n_q - 1, Math.max(0, at[0] + step[0])), Math.min(n_k - 1, Math.max(0, at[1] + step[1])));
  });

  const amount = (label, value, most) => make("input", { type: "number", min: 0, max: most, value, "aria-label": label });
  const real = amount("real tokens", Math.max(1, n_k - 2), n_k);
  const width = amount("window width", 2, n_k);
  const presets = Object.entries({
    all: "All visible", causal: "Causal", padding: "Padding", both: "Causal and padding", window: "Window",
  }).map(([name, text]) => make("button", { type: "button", onclick: () => {
    send({ _mask: preset(name, n_q, n_k, Number(real.value), Number(width.value)) });
    draw();
    tell();
  } }, text));
  const shown = make("pre", { tabindex: 0, "aria-label": "the mask as code" });
  const about = make("p");
  const copied = make("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      say(copied, "Copied");
    } catch {
      getSelection().selectAllChildren(shown);
      say(copied, "Selected: now copy");
    }
  } }, "Copy");
  const conventions = choice("the same mask as code", Object.keys(ABOUT).map((name) => [name, name]), (name) => {
    convention = name;
    draw();
  });

  root.append(
    make("style", {}, `.mha .cell { width: 44px; height: 32px; margin: 0; padding: 0; border-radius: 0; touch-action: none; }
      .mha .cell[aria-pressed=true] { border: 2px solid var(--key); padding: 0; } .mha .cell[aria-pressed=false] { border: 1px dashed var(--line); padding: 0; }
      .mha td:has(.cell) { padding: 1px; } .mha .weight { min-width: 46px; height: 34px; text-align: center; border: 1px solid var(--ground); }
      .mha .weight.hidden { border: 1px dashed var(--line); } .mha .note { text-align: left; }`),
    make("div", {}, ...presets),
    make("p", {}, "padding after ", real, " tokens; window of ", width, " tokens"),
    make("div", { class: "parts" }, left, grid("Weights: a row sums to 1, or is empty", results)), scale(),
    conventions.group, about, shown, copied);

  function go(i, j) {
    at = [i, j];
    buttons.flat().forEach((button) => set(button, { tabindex: -1 }));
    set(buttons[i][j], { tabindex: 0 });
    buttons[i][j].focus();
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
        set(buttons[i][j], {
          "aria-pressed": seen, "aria-label": `${queries[i]} may attend to ${keys[j]}`,
        });
        say(buttons[i][j], seen ? "\u2713" : "\u00b7");
        const cell = results[i].cells[j];
        set(cell, { class: seen ? "weight" : "weight hidden" });
        const { fill, text } = seen ? shade(weights[i][j]) : { fill: "transparent", text: "inherit" };
        cell.style.background = fill;
        cell.style.color = text;
        say(cell, seen ? show(weights[i][j]) : "hidden");
      });
      say(results[i].note, row.some(Boolean) ? "" : "sees nothing: fetches 0");
    });
    conventions.pick(convention);
    say(about, ABOUT[convention]);
    say(shown, code(mask, convention));
    say(copied, "Copy");
  }

  function tell(i = at[0]) {
    const { mask } = state();
    const weights = compute({ scores, mask })[i];
    const seen = weights.map((weight, j) => `${keys[j]} ${show(weight)}`).filter((_, j) => mask[i][j]);
    speak(seen.length ? `${queries[i]} sees ${seen.join(", ")}.` : `${queries[i]} sees nothing.`);
  }

  set(buttons[0][0], { tabindex: 0 });
  draw();
  const stop = follow(model, ["_mask"], draw);
  return () => {
    document.removeEventListener("pointerup", up);
    stop();
  };
}

export default { render };
