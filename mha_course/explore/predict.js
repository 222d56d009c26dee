// A question: the learner commits to an answer before the truth is shown.

import { choice, fill, follow, frame, make, say, sender, set, thumb, unlike, wide } from "./shared.js";

const TEXT = {
  name: "Question: {text}", commit: "Commit", again: "Try again", right: "Right.", wrong: "Not this one.", idea: "Not this one. {idea}",
  cell: "{row}, {column}", place: "row {row}, column {column}", mine: "your answer", truth: "the truth", you: "you", there: "truth",
  guess: "○ you {x}", real: "◆ truth {x}", bar: "{name} {x}", given: "your answer: {answer}", known: "the truth: {answer}", told: "{verdict} {given}; {known}. {say}",
  one: "Pick one", number: "Your number", pick: "Pick a cell", bars: "Set each bar from 0 to 1",
  noAnswer: "Pick an answer first.", noNumber: "Type a number first, for example 0.25.", noCell: "Pick a cell first.",
  noBar: "All bars are at 0. Move them, or press Commit again if this is your answer.",
};
const SLACK = 1 + 1e-5; // what is right by a hair stays right after rounding
const STEP = 0.05; // of a bar

const sum = (row) => row.reduce((a, b) => a + b, 0);

/** How far a guess is from a known answer. */
function off(kind, a, b) {
  if (kind === "number") return Math.abs(a - b);
  if (kind === "bars") {
    const larger = b.every((x, i) => b.every((y, j) => x - y <= STEP * SLACK || a[i] > a[j])); // bars keep their order
    return larger ? Math.max((2 * Math.abs(sum(a) - sum(b))) / a.length, ...a.map((x, i) => Math.abs(x - b[i]))) : Infinity;
  }
  return JSON.stringify(a) === JSON.stringify(b) ? 0 : Infinity;
}

/** The verdict on a guess; `known` is the truth, then what each wrong idea leads to. */
export function compute({ kind, guess, known }) {
  const [truth, ...ideas] = known.map((each) => ({ ...each, off: off(kind, guess, each.value) }));
  if (truth.off <= truth.within * SLACK) return { right: true, verdict: TEXT.right };
  const near = ideas.filter((each) => each.off < truth.off && each.off <= each.within * SLACK);
  const [idea] = near.sort((a, b) => a.off - b.off);
  return { right: false, verdict: idea ? fill(TEXT.idea, { idea: idea.say }) : TEXT.wrong };
}

/** A cell in words. Names such as "head 0" say themselves what they count. */
export function place(row, column) {
  return [row, column].some((name) => /^[a-z]+ \d+$/.test(name)) ? fill(TEXT.cell, { row, column }) : fill(TEXT.place, { row, column });
}

/** What Python wrote so that nobody reads it by accident. */
export function decode(text) {
  return JSON.parse(atob(text));
}

// One part for each kind: `nodes` to show, `draft()` what is chosen so far or null, `clear()`,
// `show(guess, truth)` marks both and takes no more input, `words(guess)`, `missing` is said if there is no draft.
const mark = (mine) => make("span", { class: mine ? "you" : "truth" }, mine ? `○ ${TEXT.mine}` : `◆ ${TEXT.truth}`);

function choiceOf(options) {
  let chosen = null;
  const { group, pick } = choice(TEXT.one, options.map((_, i) => [i, ""]), (i) => { chosen = i; });
  const lines = [...group.querySelectorAll("label")];
  lines.forEach((line, i) => {
    line.lastChild.remove();
    line.append(make("span", {}, options[i]));
  });
  const inputs = lines.map((line) => line.querySelector("input"));
  group.classList.add("options");
  const clear = () => {
    chosen = null;
    pick(null);
    inputs.forEach((input) => (input.disabled = false));
    lines.forEach((line) => line.querySelectorAll(".you, .truth").forEach((old) => old.remove()));
  };
  const show = (guess, truth) => {
    clear();
    pick(options.indexOf(guess));
    lines.forEach((line, i) => {
      inputs[i].disabled = true;
      if (options[i] === guess) line.append(mark(true));
      if (options[i] === truth) line.append(mark(false));
    });
  };
  return { nodes: [group], first: () => inputs[0], draft: () => (chosen === null ? null : options[chosen]), clear, show, words: (guess) => guess, missing: TEXT.noAnswer };
}

function numberOf(_, commit) {
  const input = make("input", { inputmode: "decimal", autocomplete: "off", onkeydown: (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey) return;
    event.preventDefault(); // else the same press would reach the next button
    commit();
  } });
  return {
    nodes: [make("label", { class: "typed" }, `${TEXT.number} `, input)], first: () => input,
    draft: () => { // a comma, too, and the minus of these pages
      const text = input.value.trim().replace(",", ".").replace("−", "-");
      return text && Number.isFinite(Number(text)) ? Number(text) : null;
    },
    clear: () => { input.value = ""; input.disabled = false; },
    show: (guess) => { input.value = guess; input.disabled = true; },
    words: (guess) => String(guess).replace("-", "−"), missing: TEXT.noNumber,
  };
}

function cellOf([rows, columns]) {
  const [told, toldColumns] = [rows, columns].map(unlike);
  let chosen = null;
  let at = [0, 0];
  const cells = rows.map((row, i) => columns.map((column, j) => make("button", {
    type: "button", class: "place", onclick: () => { chosen = [i, j]; draw(); }, onfocus: () => go(i, j),
  })));
  const table = make("table", {},
    make("caption", {}, TEXT.pick),
    make("thead", {}, make("tr", {}, make("td"), ...columns.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows.map((text, i) => make("tr", {}, make("th", { scope: "row" }, text), ...cells[i].map((cell) => make("td", {}, cell))))));
  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const [i, j] = [at[0] + step[0], at[1] + step[1]];
    cells[Math.min(rows.length - 1, Math.max(0, i))][Math.min(columns.length - 1, Math.max(0, j))].focus();
  });
  function go(i, j) {
    at = [i, j];
    cells.flat().forEach((cell) => set(cell, { tabindex: cell === cells[i][j] ? 0 : -1 }));
  }
  function draw(truth = null) {
    cells.forEach((line, i) => line.forEach((cell, j) => {
      const is = (place) => place !== null && place[0] === i && place[1] === j;
      const marks = [is(chosen) ? ["you", "○", TEXT.you, TEXT.mine] : null, is(truth) ? ["truth", "◆", TEXT.there, TEXT.truth] : null].filter(Boolean);
      set(cell, { "aria-pressed": is(chosen), "aria-label": [fill(TEXT.cell, { row: told[i], column: toldColumns[j] }), ...marks.map((mark) => mark[3])].join(", ") });
      cell.disabled = truth !== null;
      cell.replaceChildren(...marks.map(([kind, shape, word]) => make("span", { class: kind }, `${shape} ${word}`)));
    }));
  }
  const clear = () => { chosen = null; draw(); go(0, 0); };
  return {
    nodes: [wide(table)], first: () => cells[0][0], draft: () => chosen, clear,
    show: (guess, truth) => { chosen = guess; draw(truth); },
    words: ([i, j]) => place(told[i], toldColumns[j]), missing: TEXT.noCell,
  };
}

function barsOf(names) {
  let sure = false; // that zeros are the answer
  const lines = names.map((name) => {
    const value = make("span");
    const input = make("input", { type: "range", min: 0, max: 1, step: STEP, "aria-label": name, oninput: () => draw() });
    const diamond = make("span", { class: "there" });
    return { input, value, diamond, row: make("div", { class: "one" }, make("div", { class: "name" }, make("span", {}, name), value), make("div", { class: "rail" }, input, diamond)) };
  });
  const now = () => lines.map(({ input }) => input.valueAsNumber);
  function draw(guess = now(), truth = null) {
    lines.forEach(({ input, value, diamond, row }, i) => {
      row.style.setProperty("--at", guess[i]);
      value.replaceChildren(...(truth === null ? [guess[i].toFixed(2)] : [
        make("span", { class: "you" }, fill(TEXT.guess, { x: guess[i].toFixed(2) })), " ", make("span", { class: "truth" }, fill(TEXT.real, { x: truth[i].toFixed(2) }))]));
      diamond.hidden = truth === null;
      row.style.setProperty("--true", truth?.[i] ?? 0);
      input.disabled = truth !== null;
    });
  }
  const put = (values) => lines.forEach(({ input }, i) => { input.value = values[i]; });
  return {
    nodes: [make("div", { class: "bars" }, make("p", {}, TEXT.bars), ...lines.map(({ row }) => row), make("div", { class: "ends" }, make("span", {}, "0"), make("span", {}, "1")))],
    first: () => lines[0].input,
    draft: () => {
      if (sure || sum(now())) return now();
      sure = true;
      return null;
    },
    clear: () => { sure = false; put(names.map(() => 0)); draw(); },
    show: (guess, truth) => { put(guess); draw(guess, truth); },
    words: (guess) => names.map((name, i) => fill(TEXT.bar, { name, x: guess[i].toFixed(2) })).join(", "),
    missing: TEXT.noBar,
  };
}

const PARTS = { choice: choiceOf, number: numberOf, cell: cellOf, bars: barsOf };

const LOOK = `
.predict { overflow-wrap: anywhere; } .predict .ask { white-space: pre-line; font-weight: 600; }
.predict button, .predict .options label { min-height: 44px; } .mha.predict button { min-width: 44px; padding: 3px 14px; margin-top: 8px; } .predict .verdict { font-weight: 600; }
.predict [hidden] { display: none; }
.predict .options { border: 0; } .predict .options, .mha.predict legend { padding: 0; }
.predict .options label { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; white-space: normal; margin: 0; padding: 5px 0; }
.predict .options input { flex: none; width: 18px; height: 18px; margin: 0 0 0 2px; } .predict .options label > span:first-of-type { max-width: calc(100% - 30px); }
.predict .typed { display: block; } .predict .typed input { color: inherit; background: var(--ground); border: 1px solid var(--line); font: 16px system-ui, sans-serif; width: 9em; height: 44px; padding: 0 8px; }
.predict input:disabled { opacity: 1; color: inherit; }
.predict .you, .predict .truth { white-space: nowrap; border-radius: 4px; padding: 0 6px; }
.predict .you { border: 2px dashed; } .predict .truth { border: 2px solid; }
.predict .wide { padding: 4px; margin: 0 -4px; } .predict .wide th { padding: 2px 4px; max-width: 6em; overflow-wrap: normal; } .mha.predict thead th { border: 0; text-align: center; min-width: 44px; } .predict .wide td { padding: 0; }
.predict .wide .place { width: 100%; min-width: 46px; height: 46px; margin: 0; padding: 0; border-radius: 0; font-size: 12px; line-height: 1.2; display: block; }
.predict .place:disabled { color: inherit; cursor: default; opacity: 1; }
.mha.predict .place[aria-pressed=true] { padding: 0; border: 3px solid var(--accent); }
.predict .place .you, .predict .place .truth { display: block; border: 0; padding: 0; } .predict .place:has(.truth) { border: 3px double; }
.predict .bars { max-width: 460px; } .predict .name { display: flex; flex-wrap: wrap; gap: 2px 8px; justify-content: space-between; font-variant-numeric: tabular-nums; }
.predict .one { --at: 0; margin-top: 6px; } .predict .rail { position: relative; height: 44px; }
.predict .rail::before { content: ""; position: absolute; inset: 12px 22px; border: 1px solid var(--line);
  background: linear-gradient(90deg, var(--accent) calc(var(--at) * 100%), transparent 0); }
.predict input[type=range] { appearance: none; position: absolute; inset: 0; width: 100%; height: 44px; margin: 0; background: none; cursor: pointer; touch-action: pan-y; }
${thumb(".predict input[type=range]", "width: 44px; height: 44px; border: 10px solid transparent; border-radius: 50%; background: radial-gradient(var(--ground) 45%, var(--accent) 50%) padding-box;")}
.predict .there { position: absolute; top: 16px; left: calc(16px + var(--true) * (100% - 44px)); width: 12px; height: 12px; background: currentColor; box-shadow: 0 0 0 2px var(--ground); transform: rotate(45deg); pointer-events: none; }
.predict .ends { display: flex; justify-content: space-between; padding: 0 18px; }
`;

function render({ model, el }) {
  const kind = model.get("_kind");
  const known = decode(model.get("_truth"));
  const { root, speak } = frame(el, fill(TEXT.name, { text: model.get("_text") }));
  const send = sender(model, el);
  const part = PARTS[kind](model.get("_labels"), commit);
  const ready = make("button", { type: "button", onclick: commit }, TEXT.commit);
  const again = make("button", { type: "button", onclick: () => {
    send({ _guess: null });
    draw();
    part.first().focus();
  } }, TEXT.again);
  const hint = make("p");
  const lines = ["mine", "true", "verdict", "because"].map((name) => make("p", { class: name }));
  const after = make("div", {}, ...lines, again);
  for (const change of ["input", "click"]) part.nodes.forEach((node) => node.addEventListener(change, () => say(hint, "")));
  root.classList.add("predict");
  root.append(make("style", {}, LOOK), make("p", { class: "ask" }, model.get("_text")), ...part.nodes, ready, hint, after);
  root.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter") event.preventDefault(); // a key held down answers once
  });

  function commit(event) {
    if (event?.detail > 1) return; // the second half of a double click
    const guess = part.draft();
    say(hint, guess === null ? part.missing : "");
    if (guess === null) return speak(part.missing);
    send({ _guess: guess });
    draw();
    again.focus();
  }

  function draw() {
    const guess = model.get("_guess") ?? null;
    const open = guess === null;
    ready.hidden = !open;
    hint.hidden = !open;
    after.hidden = open;
    if (open) {
      part.clear();
      say(hint, "");
      lines.forEach((line) => say(line, ""));
      speak("");
      return;
    }
    const [truth] = known;
    part.show(guess, truth.value);
    const { verdict } = compute({ kind, guess, known });
    const said = [fill(TEXT.given, { answer: part.words(guess) }), fill(TEXT.known, { answer: truth.shown })];
    const seen = kind === "bars" ? ["", ""] : [`○ ${said[0]}`, `◆ ${said[1]}`]; // bars have their numbers
    [...seen, verdict, truth.say].forEach((text, i) => say(lines[i], text));
    speak(fill(TEXT.told, { verdict, given: said[0], known: said[1], say: truth.say }));
  }

  draw();
  return follow(model, ["_guess"], draw);
}

export default { render };
