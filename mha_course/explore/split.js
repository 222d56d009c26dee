// Where each number goes when heads are split: the right way, and the bare view beside it.

import { COLOURS, choice, fill, follow, frame, goals, make, paces, reset, say, sender, set, within } from "./shared.js";

const TEXT = {
  name: "Explorable: memory map of splitting heads",
  intro: "Each entry of x is its own index in memory. Its colour and t0, t1, … name its token.",
  batch: "Here x has no batch axis. With one in front, .transpose(0, 1) becomes .transpose(1, 2).",
  explain: {
    memory: "x, (n, d_model) = ({n}, {d_model}): one row for each token",
    view: "x.view(n, num_heads, d_k), ({n}, {num_heads}, {d_k}): each row is cut into heads, and no number moves in memory",
    uncut: "x.view(n, num_heads, d_k), ({n}, {num_heads}, {d_k}): one head, so no row is cut, and no number moves in memory",
    transpose: ".transpose(0, 1), (num_heads, n, d_k) = ({num_heads}, {n}, {d_k}): each head has its columns of every token",
    merge: ".transpose(0, 1).reshape(n, d_model): back to ({n}, {d_model})",
    undone: ".view(n, d_model): this is x again, too. A wrong split that is undone also gives x, so this is no test of a split",
    early: "x.view(num_heads, n, d_k), ({num_heads}, {n}, {d_k}): the shape that the right way has at step 3",
    bare: "x.view(num_heads, n, d_k), ({num_heads}, {n}, {d_k}): the same shape, but numbers are in the wrong place",
    same: "x.view(num_heads, n, d_k), ({num_heads}, {n}, {d_k}): here the same as the right way",
  },
  token: "token {i}", head: "head {i}", row: "row {i}", and: " and ", entry: "{i}\nt{token}",
  step: "step", steps: { memory: "1 x", view: "2 view", transpose: "3 transpose", merge: "4 merge back" },
  right: "right: view, then transpose", bare: "wrong: the bare view", same: "here the same: the bare view",
  sizes: { n: "n, tokens", num_heads: "num_heads", d_k: "d_k" }, size: "{name} (1 to {most})", product: "d_model = num_heads × d_k = {num_heads} × {d_k} = {d_model}",
  aims: [
    "Go to the step at which each head has its columns of every token.",
    "At step 3, find sizes for which nothing is hatched.",
    "At step 3, with two heads or more, let head 0 of the bare view hold numbers of exactly three tokens.",
  ],
  told: "{step}. The bare view has {wrong} numbers in a wrong place.", board: "{step}. {rows}", part: "{key}: {numbers}, of token {tokens}",
  hatched: "hatched: not where the right way has it ({wrong} of {all} numbers)",
};
const GAP = 22; // px between two blocks, with the name of the lower one

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
    }[step === "early" ? "bare" : step];
  });
}

/** Whether the bare view has each number where it belongs to another token or head. */
export function misplaced(sizes) {
  const [right, bare] = ["transpose", "bare"].map((step) => place(step, sizes));
  return right.map((at, i) => at.some((x, c) => x !== bare[i][c]));
}

/** What a step does, with its shape. */
export function explain(step, { n, num_heads, d_k }) {
  return fill({ ...TEXT.explain, view: TEXT.explain[num_heads > 1 ? "view" : "uncut"], bare: TEXT.explain[num_heads > 1 && n > 1 ? "bare" : "same"] }[step], { n, num_heads, d_k, d_model: num_heads * d_k });
}

/** The names of a step's blocks and rows; the bare view's rows are no tokens. */
const NAMES = { memory: ["", TEXT.token], merge: ["", TEXT.token], undone: ["", TEXT.token], view: [TEXT.token, TEXT.head], transpose: [TEXT.head, TEXT.token], early: [TEXT.head, TEXT.row], bare: [TEXT.head, TEXT.row] };

const STEPS = Object.entries(TEXT.steps);
const MOST = { n: 6, num_heads: 4, d_k: 4 };

const LOOK = `
.mha-split {
.boards { display: flex; flex-wrap: wrap; gap: 4px 48px; margin: 8px 0; } .panel { flex: 1 1 auto; max-width: 100%; min-width: min(100%, 300px); } .panel p { width: 0; min-width: 100%; min-height: 2.8em; }
.boards.cut { display: grid; grid-template: auto auto auto / auto auto; justify-content: start; gap: 0 48px; } .cut .panel { display: grid; grid-row: span 3; grid-template-rows: subgrid; }
.scroll { overflow-x: auto; padding: 1px; } .board { --cell: 34px; --tall: 34px; --label: 56px; position: relative; isolation: isolate; margin: 4px 0 8px; font-size: 12px; }
.spot { position: absolute; left: var(--label); top: 0; width: var(--cell); height: var(--tall); border: 1px solid #000; color: #000; text-align: center; padding-top: calc(var(--tall) / 2 - 14px); line-height: 13px; font-variant-numeric: tabular-nums; white-space: pre-line; font-size: 11px; }
.spot span { display: inline-block; border-radius: 3px; background-color: inherit; } .spot.off { background-image: repeating-linear-gradient(135deg, #000b 0 1.5px, transparent 1.5px 6px); }
.word { z-index: -1; position: absolute; white-space: nowrap; } .key-to .spot { position: static; display: inline-block; width: 20px; height: 20px; vertical-align: middle; background-color: #fff; }
.note { margin: 0; min-height: 1.4em; } .sizes label { display: inline-flex; gap: 6px; align-items: center; margin: 0 12px 6px 0; } .sizes input[type=number] { width: 4em; }
@container mha (width < 640px) { .board { --cell: min(28px, (100cqw - 56px) / var(--columns)); --tall: 28px; --label: 50px; } .note { min-height: 2.8em; } .bar-of { position: sticky; top: 0; z-index: 1; background: var(--ground); padding-top: 4px; } .sizes { display: grid; grid-template-columns: repeat(3, auto); justify-content: start; align-items: end; } .sizes label { flex-wrap: wrap; } .boards.cut { gap: 0 12px; } .panel p { min-height: 0; } }
}`;

function render({ model, el }) {
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  root.classList.add("mha-split");
  const size = () => ({ n: model.get("_n"), num_heads: model.get("_num_heads"), d_k: model.get("_d_k") });
  const boards = ["right", "bare"].map((kind) => {
    const title = make("strong", {}, TEXT[kind]);
    return { title, shape: make("p"), area: make("div", { class: "board", role: "img" }), spots: [] };
  });
  const note = make("p", { class: "note", role: "status" });
  const product = make("p");
  const names = TEXT.sizes;
  const inputs = Object.fromEntries(Object.keys(MOST).map((name) => [name, make("input", {
    type: "number", min: 1, max: MOST[name],
    oninput: () => say(note, ""),
    onchange: ({ target }) => {
      send({ [`_${name}`]: within(target, size()[name], note, names[name]) });
      draw();
      tell();
    },
  })]));
  const steps = choice(TEXT.step, STEPS, go);
  const pace = paces((way) => go(STEPS[STEPS.findIndex(([step]) => step === model.get("_step")) + way][0]));
  const hatched = make("span");
  const legend = make("p", { class: "key-to" }, make("span", { class: "spot off", "aria-hidden": "true" }), " ", hatched);
  const both = make("div", { class: "boards" }, ...boards.map(({ title, shape, area }) => make("div", { class: "panel" }, title, shape, make("div", { class: "scroll" }, area))));
  const state = () => ({ step: model.get("_step"), ...size() });
  const cut = ({ step }) => ["view", "transpose"].includes(step); // the steps that show the bare view
  const split = ({ step }) => step === "transpose"; // where it can be compared
  const tries = goals([
    [TEXT.aims[0], split],
    [TEXT.aims[1], (now) => split(now) && !misplaced(now).some(Boolean)],
    [TEXT.aims[2], (now) => split(now) && now.num_heads > 1 && Math.ceil(now.n / now.num_heads) === 3],
  ], state());
  const again = reset(model, ["_step", "_n", "_num_heads", "_d_k"], send, () => {
    tries.clear();
    say(note, "");
    draw();
    tell();
  });
  root.append(
    make("style", {}, LOOK),
    make("p", {}, TEXT.intro),
    make("p", { class: "sizes" }, ...Object.entries(inputs).map(([name, input]) => make("label", {}, fill(TEXT.size, { name: names[name], most: MOST[name] }), input))), product, note,
    steps.group, make("div", { class: "bar-of" }, pace.back, pace.next, again, pace.why), both, legend,
    make("p", {}, TEXT.batch), tries.node);

  function go(step) {
    send({ _step: step });
    draw();
    tell();
  }

  /** Both boards, and what is wrong with the second one. */
  function tell() {
    const now = state();
    const wrong = misplaced(now).filter(Boolean).length;
    speak(split(now) ? fill(TEXT.told, { step: explain(now.step, now), wrong }) : explain(now.step, now));
  }

  function lay(board, step, sizes) {
    const { area, shape } = board;
    const { n, num_heads, d_k } = sizes;
    const places = place(step, sizes);
    const off = step === "bare" ? misplaced(sizes) : [];
    const [block, line] = NAMES[step];
    if (board.spots.length !== places.length) {
      board.spots = places.map((_, i) => make("div", { class: "spot moves" }, make("span")));
      area.replaceChildren(...board.spots);
    }
    area.querySelectorAll(".word").forEach((word) => word.remove());
    const [blocks, rows, columns] = [0, 1, 2].map((axis) => Math.max(...places.map((at) => at[axis])) + 1);
    const top = (b, row) => `calc(${b * rows + row} * var(--tall) + ${(b + (block ? 1 : 0)) * GAP}px)`;
    const word = (text, style) => area.append(make("div", { class: "word", style }, text));
    for (let b = 0; b < blocks; b += 1) {
      if (block) word(fill(block, { i: b }), `left: var(--label); top: calc(${top(b, 0)} - 18px); font-weight: 600`);
      for (let row = 0; row < rows; row += 1) word(fill(line, { i: row }), `right: calc(100% - var(--label) + 6px); top: calc(${top(b, row)} + var(--tall) / 2 - 0.7em)`);
    }
    places.forEach(([b, row, column], i) => {
      const token = Math.floor(i / (num_heads * d_k));
      const spot = board.spots[i];
      set(spot, { class: off[i] ? "spot moves off" : "spot moves" });
      spot.style.backgroundColor = COLOURS.tokens[token];
      spot.style.transform = `translate(calc(${column} * var(--cell)), ${top(b, row)})`;
      say(spot.firstChild, fill(TEXT.entry, { i, token }));
    });
    area.style.setProperty("--columns", columns);
    area.style.height = top(blocks - 1, rows);
    area.style.width = `calc(${columns} * var(--cell) + var(--label) + 1px)`;
    say(shape, explain(step, sizes));
    set(area, { "aria-label": fill(TEXT.board, { step: explain(step, sizes), rows: table(places, sizes, NAMES[step]) }) });
  }

  function table(places, { num_heads, d_k }, [block, line]) {
    const blocks = {};
    places.forEach(([b, row], i) => {
      const key = [...(block ? [fill(block, { i: b })] : []), fill(line, { i: row })].join(", ");
      (blocks[key] = blocks[key] ?? []).push(i);
    });
    const tokens = (all) => [...new Set(all.map((i) => Math.floor(i / (num_heads * d_k))))].join(TEXT.and);
    return Object.entries(blocks).map(([key, all]) => fill(TEXT.part, { key, numbers: all.join(" "), tokens: tokens(all) })).join("; ");
  }

  function draw() {
    const now = state();
    const sizes = size();
    steps.pick(now.step);
    pace.at(now.step === STEPS[0][0], now.step === STEPS.at(-1)[0]);
    for (const [name, input] of Object.entries(inputs)) input.value = sizes[name];
    set(both, { class: cut(now) ? "boards cut" : "boards" });
    legend.style.visibility = split(now) ? "visible" : "hidden";
    lay(boards[0], now.step, sizes);
    lay(boards[1], { memory: "memory", view: "early", transpose: "bare", merge: "undone" }[now.step], sizes);
    const wrong = misplaced(sizes);
    say(boards[1].title, wrong.some(Boolean) ? TEXT.bare : TEXT.same);
    say(product, fill(TEXT.product, { ...sizes, d_model: sizes.num_heads * sizes.d_k }));
    say(hatched, fill(TEXT.hatched, { wrong: wrong.filter(Boolean).length, all: wrong.length }));
    tries.look(now);
  }

  draw();
  return follow(model, ["_step", "_n", "_num_heads", "_d_k"], draw);
}

export default { render };
