// Where each number goes when heads are split: the right way, and the bare view beside it.

import { choice, follow, frame, make, say, sender, set } from "./shared.js";

const CELL = 30;
const GAP = 12;
// Colours of tokens, the same in both themes; the text in each is dark enough on all of them.
const COLOURS = ["#8ecae6", "#ffb703", "#95d5b2", "#f4a6c0", "#cdb4db", "#e9c46a"];

/** For each number x[token, column] its index after a step: (block, row, column). */
export function place(step, { n, num_heads, d_k }) {
  const d_model = num_heads * d_k;
  return Array.from({ length: n * d_model }, (_, i) => {
    const [token, column] = [Math.floor(i / d_model), i % d_model];
    const [head, inside] = [Math.floor(column / d_k), column % d_k];
    return {
      memory: [0, token, column],
      view: [token, head, inside],
      transpose: [head, token, inside],
      merge: [0, token, column],
      undone: [0, token, column],
      bare: [Math.floor(i / (n * d_k)), Math.floor(i / d_k) % n, i % d_k],
    }[step];
  });
}

/** What a step does, with its shape. */
export function explain(step, { n, num_heads, d_k }) {
  return {
    memory: `x, (n, d_model) = (${n}, ${num_heads * d_k}): one row for each token`,
    view: `x.view(n, num_heads, d_k), (${n}, ${num_heads}, ${d_k}): each row is cut, no number moves`,
    transpose: `.transpose(0, 1), (num_heads, n, d_k) = (${num_heads}, ${n}, ${d_k}): each head has its columns of every token`,
    merge: `.transpose(0, 1).reshape(n, d_model): back to (${n}, ${num_heads * d_k})`,
    undone: `.view(n, d_model): back to x as well, so a round trip does not show the mistake`,
    bare: `x.view(num_heads, n, d_k), (${num_heads}, ${n}, ${d_k}): the same shape, tokens cut apart`,
  }[step];
}

const STEPS = [["memory", "1 x"], ["view", "2 view"], ["transpose", "3 transpose"], ["merge", "4 merge back"]];
const MOST = { n: 6, num_heads: 4, d_k: 4 };

function render({ model, el }) {
  const send = sender(model);
  const { root, speak } = frame(el, "Explorable: memory map of splitting heads");
  const size = () => ({ n: model.get("_n"), num_heads: model.get("_num_heads"), d_k: model.get("_d_k") });
  const boards = ["right", "bare"].map((kind) => {
    const title = make("strong", {}, kind === "right" ? "view, then transpose" : "the bare view");
    return { title, shape: make("p"), area: make("div", { class: "board", role: "img" }) };
  });
  const names = { n: "n, tokens", num_heads: "num_heads", d_k: "d_k" };
  const inputs = Object.fromEntries(Object.keys(MOST).map((name) => [name, make("input", {
    type: "number", min: 1, max: MOST[name], "aria-label": names[name],
    onchange: (event) => {
      const value = Math.min(MOST[name], Math.max(1, Math.round(Number(event.target.value)) || 1));
      send({ [`_${name}`]: value });
      draw();
    },
  })]));
  const steps = choice("step", STEPS, go);
  const by = (amount, text) => make("button", { type: "button", onclick: () => {
    const i = STEPS.findIndex(([step]) => step === model.get("_step")) + amount;
    go(STEPS[Math.min(STEPS.length - 1, Math.max(0, i))][0]);
  } }, text);
  root.append(
    make("style", {}, `.mha .board { position: relative; margin: 4px 0 8px; }
      .mha .spot { position: absolute; width: ${CELL}px; height: ${CELL}px; border: 1px solid #000; color: #000;
        text-align: center; line-height: ${CELL - 2}px; font-size: 12px; font-variant-numeric: tabular-nums; }
      .mha .side { flex: 1 1 320px; max-width: 420px; } .mha .side p { min-height: 3em; }`),
    make("p", {}, "A colour is a token, a number is a place in memory. Step through, and compare the two sides."),
    make("p", {}, ...Object.entries(inputs).flatMap(([name, input]) => [`${names[name]} `, input, "  "])),
    steps.group, by(-1, "Back"), by(1, "Next"),
    make("div", { class: "parts" }, ...boards.map(({ title, shape, area }) => make("div", { class: "side" }, title, shape, area))));

  function go(step) {
    send({ _step: step });
    draw();
    speak(explain(step, size()));
  }

  function lay({ area, shape }, step, sizes) {
    const { n, num_heads, d_k } = sizes;
    const places = place(step, sizes);
    const count = n * num_heads * d_k;
    if (area.childElementCount !== count) {
      area.replaceChildren(...places.map((_, i) => make("div", { class: "spot moves" }, String(i))));
    }
    const rows = Math.max(...places.map(([, row]) => row)) + 1;
    places.forEach(([block, row, column], i) => {
      const spot = area.children[i];
      const colour = COLOURS[Math.floor(i / (num_heads * d_k)) % COLOURS.length];
      const to = `translate(${column * CELL}px, ${(block * rows + row) * CELL + block * GAP}px)`;
      set(spot, { style: `background: ${colour}; transform: ${to}` });
    });
    const high = Math.max(...places.map(([block, row]) => (block * rows + row + 1) * CELL + block * GAP));
    area.style.height = `${high}px`;
    area.style.width = `${(Math.max(...places.map(([, , column]) => column)) + 1) * CELL}px`;
    say(shape, explain(step, sizes));
    set(area, { "aria-label": `${explain(step, sizes)}. ${table(places, sizes)}` });
  }

  function table(places, { num_heads, d_k }) {
    const blocks = {};
    places.forEach(([block, row], i) => {
      const key = `block ${block} row ${row}`;
      (blocks[key] = blocks[key] ?? new Set()).add(Math.floor(i / (num_heads * d_k)));
    });
    return Object.entries(blocks).map(([key, tokens]) => `${key}: token ${[...tokens].join(" and ")}`).join("; ");
  }

  function draw() {
    const step = model.get("_step");
    const sizes = size();
    steps.pick(step);
    for (const [name, input] of Object.entries(inputs)) input.value = sizes[name];
    lay(boards[0], step, sizes);
    lay(boards[1], { memory: "memory", merge: "undone" }[step] ?? "bare", sizes);
  }

  draw();
  return follow(model, ["_step", "_n", "_num_heads", "_d_k"], draw);
}

export default { render };
