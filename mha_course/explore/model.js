// A small language model in the browser: it reads, writes, and shows what each head does, also when one changes it.

import { choice, clip, follow, frame, goals, make, paint, reset, say, scale, sender, set, shade, show, softmax } from "./shared.js";

// ---- The model. A token's numbers depend on the tokens up to it, so each token is computed once and kept.

/** Bytes from base64. */
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

/** The weights, in the order of `packed` of the Python side: matrices in steps of one number for each row, and vectors. */
export function unpack({ matrices, numbers, shape: [layers, heads, width, most, networks], words }) {
  const steps = new Int8Array(bytes(matrices));
  const all = new Float32Array(bytes(numbers));
  let [at, next] = [0, 0];
  const vector = (n) => all.subarray(next, (next += n));
  const matrix = (rows, columns) => {
    const scales = vector(rows);
    return Float64Array.from(steps.subarray(at, (at += rows * columns)), (step, i) => step * scales[Math.floor(i / columns)]);
  };
  const linear = (columns, rows) => ({ weight: matrix(rows, columns), bias: vector(rows) });
  const norm = () => ({ weight: vector(width), bias: vector(width) });
  return {
    heads, width, most, embedding: matrix(words, width), positions: matrix(most, width),
    blocks: Array.from({ length: layers }, () => ({
      query: linear(width, width), key: linear(width, width), value: linear(width, width), out: linear(width, width), norm1: norm(),
      ...(networks ? { up: linear(width, 4 * width), down: linear(4 * width, width), norm2: norm() } : {}),
    })),
    norm: norm(),
  };
}

/** Numbers at once; a typed array's own map is slower. */
function fill(length, at) {
  const numbers = new Float64Array(length);
  for (let i = 0; i < length; i += 1) numbers[i] = at(i);
  return numbers;
}

/** Two rows of weight times four x: eight sums at once, which a processor adds side by side. */
function eight(weight, i, k, a, b, c, d) {
  let w = 0, x = 0, y = 0, z = 0, e = 0, f = 0, g = 0, h = 0;
  for (let j = 0; j < a.length; j += 1) {
    const one = weight[i + j], two = weight[k + j];
    w += one * a[j]; x += one * b[j]; y += one * c[j]; z += one * d[j];
    e += two * a[j]; f += two * b[j]; g += two * c[j]; h += two * d[j];
  }
  return [w, x, y, z, e, f, g, h];
}

/** weight x + bias for each x */
function apply({ weight, bias }, all) {
  const rows = bias.length, n = weight.length / rows;
  const out = all.map(() => new Float64Array(rows));
  for (let t = 0; t < all.length; t += 4) {
    const four = [0, 1, 2, 3].map((k) => Math.min(t + k, all.length - 1));
    const [a, b, c, d] = four.map((at) => all[at]);
    for (let i = 0; i < rows; i += 2) {
      const k = Math.min(i + 1, rows - 1);
      const sums = eight(weight, i * n, k * n, a, b, c, d);
      four.forEach((at, m) => { out[at][i] = sums[m] + bias[i]; out[at][k] = sums[m + 4] + bias[k]; });
    }
  }
  return out;
}

/** Mean 0 and variance 1, then scaled and shifted. */
function normalise({ weight, bias }, x) {
  let [mean, variance] = [0, 0];
  for (let i = 0; i < x.length; i += 1) mean += x[i] / x.length;
  for (let i = 0; i < x.length; i += 1) variance += (x[i] - mean) ** 2 / x.length;
  const scale = 1 / Math.sqrt(variance + 1e-5);
  return fill(x.length, (i) => (x[i] - mean) * scale * weight[i] + bias[i]);
}

/** erf(x) to 1.5e-7: Abramowitz and Stegun 1964, formula 7.1.26. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const gelu = (all) => fill(all.length, (i) => 0.5 * all[i] * (1 + erf(all[i] / Math.SQRT2)));
const plus = (a, b) => fill(a.length, (i) => a[i] + b[i]);

/** The dot product of one head's part of two vectors. */
function part(a, b, from, to) {
  let sum = 0;
  for (let c = from; c < to; c += 1) sum += a[c] * b[c];
  return sum;
}

/** sum = sum + weight x, in one head's part. */
function gather(sum, x, weight, from, to) {
  for (let c = from; c < to; c += 1) sum[c] += weight * x[c];
}

/** The weights of a new token over all so far: learned ones, or a patch. */
function attend(scores, act) {
  const n = scores.length;
  if (act === "uniform") return fill(n, () => 1 / n);
  if (act === "previous") return fill(n, (j) => (j === Math.max(n - 2, 0) ? 1 : 0));
  let [top, sum] = [-Infinity, 0];
  for (let j = 0; j < n; j += 1) top = Math.max(top, scores[j]);
  const weights = new Float64Array(n);
  for (let j = 0; j < n; j += 1) sum += weights[j] = Math.exp(scores[j] - top);
  for (let j = 0; j < n; j += 1) weights[j] /= sum;
  return weights;
}

/** More tokens, layer by layer: their queries meet the kept keys and values of `past` and their own. */
function extend(net, past, tokens, acts) {
  const { heads, width } = net;
  const size = width / heads, root = Math.sqrt(size);
  const row = (table, i) => new Float64Array(table.subarray(i * width, (i + 1) * width));
  const fresh = tokens.map((token, i) => ({ token, embedding: plus(row(net.embedding, token), row(net.positions, past.length + i)), layers: [] }));
  const steps = [...past, ...fresh];
  let xs = fresh.map(({ embedding }) => embedding);
  const add = (ys) => { xs = xs.map((x, i) => plus(x, ys[i])); };
  net.blocks.forEach((block, l) => {
    const ys = xs.map((x) => normalise(block.norm1, x));
    const [queries, keys, values] = [block.query, block.key, block.value].map((part) => apply(part, ys));
    fresh.forEach(({ layers }, i) => layers.push({ query: queries[i], key: keys[i], value: values[i], scores: [], weights: [], output: new Float64Array(width) }));
    const kept = steps.map(({ layers }) => layers[l]);
    kept.slice(past.length).forEach((now, i) => {
      for (let h = 0; h < heads; h += 1) {
        const from = h * size;
        const act = acts[l * heads + h], scores = new Float64Array(past.length + i + 1);
        for (let j = 0; j < scores.length; j += 1) scores[j] = part(now.query, kept[j].key, from, from + size) / root;
        const weights = attend(scores, act);
        if (act !== "silent") for (let j = 0; j < scores.length; j += 1) gather(now.output, kept[j].value, weights[j], from, from + size);
        now.scores.push(scores);
        now.weights.push(weights);
      }
    });
    add(apply(block.out, kept.slice(past.length).map(({ output }) => output)));
    if (block.up) add(apply(block.down, apply(block.up, xs.map((x) => normalise(block.norm2, x))).map(gelu)));
  });
  const logits = apply({ weight: net.embedding, bias: new Float64Array(net.embedding.length / width) }, xs.map((x) => normalise(net.norm, x)));
  fresh.forEach((step, i) => { step.logits = logits[i]; });
  return steps;
}

/** What the model computes for each token. What `old` has of the same beginning, with the same acts, is kept. */
export function compute(net, tokens, acts, old = null) {
  const steps = [];
  if (old !== null && acts.every((act, i) => act === old.acts[i])) {
    while (steps.length < tokens.length && old.steps[steps.length]?.token === tokens[steps.length]) steps.push(old.steps[steps.length]);
  }
  const kept = steps.length;
  return { steps: extend(net, steps, tokens.slice(kept), acts), acts, kept };
}

/** Probabilities of the next word; at temperature 0, the largest logit has all. */
export function probabilities(logits, temperature) {
  const all = Array.from(logits);
  const top = Math.max(...all);
  if (temperature === 0) return all.map((logit, i) => (i === all.indexOf(top) ? 1 : 0));
  return softmax(all.map((logit) => (logit - top) / temperature));
}

/** The word that a random number from 0 to 1 draws; token 0 starts a text, so it is not drawn. */
export function drawn(p, random) {
  const words = p.map((x, i) => (i === 0 ? 0 : x));
  let left = random * words.reduce((a, b) => a + b);
  const found = words.findIndex((x) => (left -= x) < 0);
  return found > 0 ? found : words.indexOf(Math.max(...words));
}

/** The mean of -log p(next word); NaN for a text without a second token. */
export function loss({ steps }) {
  const each = steps.slice(1).map(({ token }, i) => -Math.log(probabilities(steps[i].logits, 1)[token]));
  return each.reduce((a, b) => a + b, 0) / each.length;
}

// ---- Text

/** A reader of texts: the words that the model knows up to the first that it does not, or that is still being typed. */
export function reader(words, most) {
  const known = words.filter((word) => word.trim() !== "");
  const literal = (word) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&") + (/[\p{L}\p{N}_]$/u.test(word) ? "(?![\\p{L}\\p{N}_])" : "");
  const longest = [...known].sort((a, b) => b.length - a.length).map(literal);
  const pattern = new RegExp([...longest, "[\\p{L}\\p{N}_]+", "\\S"].join("|"), "giu");
  const number = new Map(words.map((word, i) => [word, i]));
  const low = new Map(known.map((word) => [word.toLowerCase(), number.get(word)]));
  const starting = (part) => known.filter((word) => word.toLowerCase().startsWith(part.toLowerCase()));
  return (text, caret = text.length) => {
    const tokens = [0];
    for (const { 0: word, index } of text.matchAll(pattern)) {
      const token = number.get(word) ?? low.get(word.toLowerCase());
      if (token === undefined) {
        const typing = caret === index + word.length && starting(word).length > 0;
        return { tokens, problem: typing ? "" : `The model does not know “${word}”, so it reads only the words before it.` };
      }
      if (tokens.length === most) return { tokens, problem: `The model reads at most ${most} tokens, so it leaves out the rest.` };
      tokens.push(token);
    }
    return { tokens, problem: "" };
  };
}

/** The words that begin like what is left of the caret, and where this part begins. */
export function completions(words, text, caret) {
  const part = text.slice(0, caret).match(/[\p{L}\p{N}_]*$/u)[0];
  const found = words.filter((word) => word.trim() !== "" && word.toLowerCase().startsWith(part.toLowerCase()));
  return { part, begin: caret - part.length, found: found.sort((a, b) => (b === part) - (a === part)) };
}

/** The text of tokens, without the one that starts it. */
export const written = (tokens, words) => tokens.slice(1).map((token) => words[token]).join(" ").replaceAll(" .", ".");

// ---- The picture

const BARS = 6;
const ACTS = [["", "as learned"], ["silent", "silent"], ["uniform", "uniform weights"], ["previous", "all weight on the previous token"]];
const MARKS = { "": "", silent: "silent", uniform: "uniform", previous: "previous" };
const NAMED = 14; // tokens that have room for their names at the enlarged head
const HOT = 5; // the highest temperature
const REACH = 3; // of the numbers in keys and values that have the full colour

const LOOK = `
.mha-lm {
.field:has(.words:not([hidden])) .problem:empty { display: none; } .field textarea { display: block; width: 100%; font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line); border-radius: 4px; padding: 6px 8px; resize: none; overflow: hidden; }
.words { display: flex; gap: 4px; padding: 4px; overflow-x: auto; } .shelf .words { flex-wrap: wrap; padding: 6px; margin-bottom: 8px; border: 1px solid var(--line); }
.words[hidden] { display: none; } .words [role=option] { padding: 3px 9px; border: 1px solid var(--line); border-radius: 4px; cursor: pointer; min-width: var(--target); min-height: var(--target); display: grid; place-content: center; } .words [aria-selected=true] { outline: 2px solid var(--accent); font-weight: 600; }
.problem { margin: 2px 0; min-height: max(34px, var(--target) + 6px); } .why { margin: 0; } .why:has(+ .why) { min-height: 1.4em; } .bars [aria-disabled=true] { opacity: 1; } .problem:not(:empty)::before { content: "\\26a0\\a0"; }
.sentence { overflow-x: auto; padding: 3px 0; } .sentence svg { display: block; max-width: none; } .line { display: flex; width: max-content; } .line button { margin: 0; padding: 2px 0; border: 1px solid var(--ground); border-radius: 0; flex: none; overflow: hidden; contain: content; line-height: 1.25; }
.line button[hidden] { display: none; } .line [aria-selected=true] { border: 2px solid var(--query); font-weight: 600; } .line span { display: block; font-size: 12px; font-weight: 400; font-variant-numeric: tabular-nums; }
.two { display: grid; grid-template-columns: minmax(0, 1.5fr) minmax(0, 1fr); gap: 8px 24px; align-items: start; margin: 8px 0; } .two > * { min-width: 0; }
.every { display: grid; gap: 8px; } .every > div > p { margin: 0; } .layer { display: grid; gap: 6px; }
.thumb { display: grid; } .thumb button { margin: 0 0 3px; padding: 3px; } canvas { display: block; image-rendering: pixelated; border: 1px solid var(--line); } :is(.thumb, .enlarged) canvas { width: 100%; aspect-ratio: 1; } .thumb .pick[aria-pressed=true] { padding: 2px; }
.map { position: relative; line-height: 0; } .act { position: absolute; inset: auto 0 0; line-height: 1.3; font-size: 12px; text-align: center; background: color-mix(in srgb, var(--ground) 87%, transparent); } .thumb.silent canvas, .enlarged.silent canvas { opacity: 0.4; }
.sheet { display: grid; grid-template-columns: max-content minmax(0, 260px); gap: 4px 6px; font-size: 12px; line-height: 1; } .rows, .columns { display: grid; grid-auto-rows: minmax(0, 1fr); align-items: center; justify-items: end; } .rows { width: 76px; contain: size; } .enlarged .map { align-self: start; } .rows span { white-space: nowrap; } .rows .now { font-weight: 700; }
.columns { grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); justify-items: center; min-height: 4em; align-items: start; } .columns span { writing-mode: vertical-rl; }
.chosen-row { position: absolute; left: -2px; right: -2px; border: 2px solid var(--query); pointer-events: none; }
.bars { width: 100%; table-layout: fixed; } .bars th[scope=row] { padding: 1px 0; width: 32%; } .bars th button { margin: 0; width: 100%; text-align: left; padding: 2px 6px; overflow: hidden; text-overflow: ellipsis; } .bars .track { width: 100%; position: relative; } .bars .was { position: absolute; top: -3px; bottom: -3px; width: 3px; background: currentColor; } .bars .bar { background: var(--accent); }
.bars td { padding: 1px 4px; } .bars .p { width: 4.4em; } .bars th[scope=col] { padding: 1px 4px; white-space: nowrap; } .cache { display: flex; flex-wrap: wrap; gap: 6px 20px; } .cache canvas { height: 48px; } .cache p { margin: 0; } .cache .store { position: relative; width: max-content; } .cache .new { position: absolute; top: -2px; bottom: -2px; right: -2px; border: 2px solid var(--accent); pointer-events: none; }
.store-box { overflow: hidden; } textarea { font-size: 14px; }
@container mha (width < 640px) { .two { grid-template-columns: minmax(0, 1fr); } textarea { font-size: 16px !important; } .thumb button:not(.pick) { font-size: 12px; } .bars { max-width: 420px; } }
}`;

function render({ model, el }) {
  const shape = model.get("_shape");
  const [layers, heads, width, most] = shape;
  const words = model.get("_words");
  const net = unpack({ matrices: model.get("_matrices"), numbers: model.get("_numbers"), shape, words: words.length });
  const reads = reader(words, most);
  let known = []; // what was read last: a draw reads the same text several times
  const read = (text, caret) => {
    if (known[0] !== text || known[1] !== caret) known = [text, caret, reads(text, caret)];
    return known[2];
  };
  const ranked = (p) => p.map((_, i) => i).sort((a, b) => p[b] - p[a]);
  const named = (token) => (words[token].trim() === "" ? "start" : words[token]);
  const title = (i) => `layer ${Math.floor(i / heads)}, head ${i % heads}`;
  const learned = Array(layers * heads).fill("");
  const send = sender(model, el);
  const { root, inks, speak } = frame(el, "Explorable: a small language model", () => draw());
  root.classList.add("mha-lm");
  const state = () => ({ tokens: model.get("_tokens"), acts: model.get("_acts"), shown: model.get("_shown"), row: model.get("_row"), temperature: model.get("_temperature") });
  let [before, after] = [null, null]; // what the model computes as it was learned, and with the acts
  let quiet = false; // while several states change at once
  let writing = null;
  let pause = null; // after it, what was typed is spoken of
  let [subject, heard] = [[], ""]; // the states that the spoken words are about, and as they were
  const about = () => JSON.stringify(subject.map((name) => model.get(name)));
  const voice = (text, ...more) => {
    clearTimeout(pause);
    subject = ["_tokens", "_acts", "_temperature", ...more];
    heard = about();
    speak(text);
  };

  // The text, with the words that fit at the caret.
  const id = `words-${Math.random().toString(36).slice(2)}`;
  const box = make("textarea", {
    rows: 2, "aria-label": "the text that the model reads", "aria-autocomplete": "list", "aria-controls": id, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
    oninput: () => typed(), onkeydown: keys, onblur: () => { offer([]); check(); },
  });
  const list = make("div", { id, role: "listbox", class: "words", "aria-label": "words of the model", hidden: "" });
  const problem = make("p", { class: "problem", role: "status" });
  let offered = { found: [], begin: 0, at: 0 };

  function typed() {
    stop();
    reread(box.selectionStart);
    const { part, begin, found } = completions(words, box.value, box.selectionStart);
    offer(part && !(found.length === 1 && found[0] === part) ? found : [], begin);
    pause = setTimeout(tell, 700);
  }

  function reread(caret) {
    const { tokens, problem: text } = read(box.value, caret);
    say(problem, text);
    fit();
    change({ _tokens: tokens, _row: -1 });
  }

  /** Words are offered in the line below the box while one types, and all of them below the buttons. */
  function offer(found, begin = 0, shelf = field) {
    offered = { found, begin, at: 0 };
    shelf.append(list);
    list.replaceChildren(...found.map((word, i) => make("div", {
      role: "option", id: `${id}-${i}`, onmousedown: (event) => event.preventDefault(), onclick: () => take(i),
    }, word)));
    list.hidden = found.length === 0;
    say(choose, list.hidden ? "Choose a word" : "Close the words");
    set(choose, { "aria-expanded": !list.hidden });
    mark(0);
  }

  function mark(at) {
    offered.at = at;
    [...list.children].forEach((option, i) => set(option, { "aria-selected": i === at }));
    if (list.hidden) return box.removeAttribute("aria-activedescendant");
    set(box, { "aria-activedescendant": `${id}-${at}` });
    if (at) list.children[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function take(i) {
    const { found, begin } = offered;
    const rest = box.value.slice(box.selectionStart).replace(/^\s*/, "");
    const start = `${box.value.slice(0, begin)}${found[i]} `;
    box.value = start + rest;
    box.setSelectionRange(start.length, start.length);
    typed();
    offer([]);
    box.focus();
    tell();
  }

  function keys(event) {
    const open = offered.found.length;
    const to = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (open) take(offered.at);
      else tell();
    } else if (event.key === "Escape" && open) {
      offer([]);
    } else if (to && open) {
      event.preventDefault();
      mark((offered.at + to + open) % open);
    } else if (event.key === "ArrowDown" && box.selectionStart === box.value.length) {
      event.preventDefault();
      all();
    }
  }

  /** All words, at the caret. */
  function all() {
    const { begin, part, found } = completions(words, box.value, box.selectionStart);
    offer(part && found.length > 1 ? found : words.filter((word) => word.trim() !== ""), part && found.length > 1 ? begin : box.selectionStart, shelf);
  }

  // The box keeps the focus when a button is clicked: nothing moves under the pointer.
  const stay = (event) => { if (document.activeElement === box) event.preventDefault(); };
  const button = (text, onclick, more = {}) => make("button", { type: "button", onclick, onmousedown: stay, ...more }, text);
  const choose = button("Choose a word", () => {
    const open = offered.found.length > 0;
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
    if (!open && box.value !== "" && !/\s$/.test(box.value)) box.value += " ";
    if (open) offer([]);
    else all();
  });
  const one = button("Write one word", () => add());
  const on = button(`Write up to ${most} tokens`, () => {
    if (writing !== null) {
      stop();
      tell();
      return;
    }
    if (!ready()) return;
    const again = () => {
      write();
      writing = state().tokens.length < most ? requestAnimationFrame(again) : null;
      if (writing === null) tell();
      check();
    };
    writing = requestAnimationFrame(again);
    check();
  });
  const shorter = button("Delete the last word", () => {
    stop();
    if (box.value.trim() === "") return voice(why.textContent);
    if (read(box.value, -1).problem) {
      box.value = box.value.replace(/([\p{L}\p{N}_]+|\S)\s*$/u, "");
      reread(-1);
    } else change({ _tokens: state().tokens.slice(0, -1), _row: -1 });
    tell();
  });
  const why = make("p", { class: "why", id: `${id}-why` }); // some buttons are disabled
  const shelf = make("div", { class: "shelf" });
  const field = make("div", { class: "field" }, box, problem, list);
  const warm = make("p", { class: "why", role: "status" });
  const heat = make("input", { type: "number", min: 0, max: HOT, step: 0.1, oninput: () => {
    const value = heat.valueAsNumber;
    if (value >= 0 && value <= HOT) {
      say(warm, "");
      change({ _temperature: value });
    }
  }, onchange: () => {
    const [typed, { temperature }] = [heat.valueAsNumber, state()];
    const kept = Number.isNaN(typed) ? temperature : clip(typed, 0, HOT);
    heat.value = kept;
    say(warm, typed === kept ? "" : `A temperature is a number from 0 to ${HOT}. Now it is ${kept}.`);
    change({ _temperature: kept });
    tell();
  } });

  /** Show which buttons work, and if some do not, why. */
  function check() {
    if (document.activeElement !== box) say(problem, read(box.value, -1).problem);
    const full = state().tokens.length >= most;
    const reason = problem.textContent ? "The model can write again when it reads all words." : full ? `The text has ${most} tokens, the most that the model reads. Delete a word to go on.` : "";
    const empty = box.value.trim() === "";
    say(on, writing === null ? `Write up to ${most} tokens` : "Stop");
    for (const each of [one, on, ...bars.map(({ add }) => add)]) set(each, { "aria-disabled": reason !== "" && (writing === null || each !== on) });
    set(shorter, { "aria-disabled": empty });
    for (const each of [one, on, shorter]) set(each, { "aria-describedby": why.id });
    say(why, reason || (empty ? "There is no word to delete." : ""));
    return reason === "";
  }

  /** Whether the model can write; if not, it says why. */
  function ready() {
    say(problem, read(box.value, -1).problem);
    if (check()) return true;
    voice(`${problem.textContent} ${why.textContent}`.trim());
    return false;
  }

  function stop() {
    cancelAnimationFrame(writing);
    writing = null;
    offer([]);
    check();
  }

  function write(token = null) {
    const { tokens, temperature } = state();
    const next = token ?? drawn(probabilities(after.steps.at(-1).logits, temperature), Math.random());
    change({ _tokens: [...tokens, next], _row: -1 });
  }

  /** One word, given or drawn. */
  function add(token = null) {
    stop();
    if (!ready()) return;
    write(token);
    tell();
  }

  /** The box is as high as its text. */
  function fit() {
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  }

  // The sentence: a slot for each token, as wide as its word; arcs lead from the chosen token to those it looks at.
  const ink = make("canvas").getContext("2d");
  ink.font = "600 14px system-ui, sans-serif";
  const wide = words.map((_, i) => Math.max(44, Math.ceil(ink.measureText(named(i)).width) + 16));
  const HIGH = 84;
  const arcs = Array.from({ length: most }, () => make("path", { fill: "none", stroke: "var(--weight)", "stroke-linecap": "round" }));
  const sky = make("svg", { height: HIGH, "aria-hidden": "true" }, ...arcs);
  const slots = Array.from({ length: most }, (_, i) => {
    const [word, weight] = [make("b", { style: "font-weight: inherit" }), make("span")];
    const slot = make("button", {
      type: "button", role: "option", tabindex: -1, onclick: () => point(i, true), onfocus: () => point(i, true),
      onpointerenter: (event) => { if (event.pointerType !== "touch") point(i, false); },
    }, word, weight);
    return { slot, word, weight };
  });
  const line = make("div", { class: "line", role: "listbox", "aria-label": "query token", "aria-orientation": "horizontal", onkeydown: (event) => {
    const n = state().tokens.length;
    const to = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -n, End: n }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    slots[Math.min(n - 1, Math.max(0, chosen() + to))].slot.focus();
  } }, ...slots.map(({ slot }) => slot));
  const sentence = make("div", { class: "sentence", onscroll: ends }, sky, line);
  const shift = (text, way) => button(text, () => sentence.scrollBy({ left: way * 0.7 * sentence.clientWidth }));
  const [earlier, later] = [shift("◂ earlier tokens", -1), shift("later tokens ▸", 1)];

  /** Buttons that scroll, if the sentence is longer than its place. */
  function ends() {
    const [left, rest] = [sentence.scrollLeft, sentence.scrollWidth - sentence.clientWidth];
    for (const each of [earlier, later]) each.hidden = rest < 2;
    set(earlier, { "aria-disabled": left < 1 });
    set(later, { "aria-disabled": left > rest - 2 });
  }

  const chosen = ({ row, tokens } = state()) => (row < 0 ? tokens.length - 1 : Math.min(row, tokens.length - 1));

  function point(i, aloud) {
    if (i !== chosen()) change({ _row: i });
    if (aloud) voice(looks(), "_shown", "_row");
  }

  // The heads
  const canvas = (name) => make("canvas", { role: "img", "aria-label": name });
  const thumbs = learned.map((_, i) => {
    const map = canvas(`weights of ${title(i)}`);
    const act = make("div", { class: "act" });
    const pick = button("", () => {
      change({ _shown: i });
      voice(`${title(i)} is enlarged. ${looks()}`, "_shown", "_row");
    }, { class: "pick", "aria-label": `enlarge ${title(i)}`, title: `enlarge ${title(i)}` });
    pick.append(make("div", { class: "map" }, map, act));
    const mute = button("silence", () => turn(i, state().acts[i] === "silent" ? "" : "silent"), { "aria-label": `silence ${title(i)}` });
    return { map, act, pick, mute, whole: make("div", { class: "thumb" }, pick, mute) };
  });
  const every = make("div", { class: "every" }, ...net.blocks.map((_, l) => make("div", {}, make("p", {}, `layer ${l}, heads 0 to ${heads - 1}`),
    make("div", { class: "layer", style: `grid-template-columns: repeat(${heads}, minmax(0, 1fr))` }, ...thumbs.slice(l * heads, (l + 1) * heads).map(({ whole }) => whole)))));
  const large = canvas("");
  const mark_row = make("div", { class: "chosen-row" });
  const large_map = make("div", { class: "map", onpointermove: (event) => {
    if (event.pointerType === "touch") return;
    const area = large.getBoundingClientRect();
    const n = state().tokens.length;
    point(Math.min(n - 1, Math.max(0, Math.floor(((event.clientY - area.top) / area.height) * n))), false);
  } }, large, mark_row);
  const heading = make("strong");
  const rows = make("div", { class: "rows", "aria-hidden": "true" });
  const columns = make("div", { class: "columns", "aria-hidden": "true" });
  const acting = choice("this head is", ACTS, (act) => turn(state().shown, act));
  const enlarged = make("div", { class: "enlarged" }, make("p", {}, heading), make("div", { class: "sheet" }, rows, large_map, make("span"), columns));
  const clear = button("All heads as learned", () => {
    change({ _acts: learned });
    tell();
  }, { "aria-describedby": `${id}-clear` });
  const same = make("span", { id: `${id}-clear` });

  function turn(i, act) {
    change({ _acts: state().acts.map((old, j) => (j === i ? act : old)), _shown: i });
    tell();
  }

  // The next word and the loss
  const bars = Array.from({ length: Math.min(BARS, words.length) }, () => {
    const [bar, was, p, old] = [make("div", { class: "bar" }), make("div", { class: "was" }), make("td", { class: "p" }), make("td", { class: "p" })];
    const row = { bar, was, p, old, token: 0 };
    row.add = button("", () => add(row.token));
    row.line = make("tr", {}, make("th", { scope: "row" }, row.add), make("td", {}, make("div", { class: "track" }, bar, was)), p, old);
    return row;
  });
  const caption = make("caption");
  const learned_column = make("th", { scope: "col", class: "p" }, "learned");
  const next = make("table", { class: "bars" }, caption,
    make("thead", {}, make("tr", {}, make("th", { scope: "col", style: "width: 32%; text-align: left" }, "word"), make("th", { scope: "col" }, make("span", { class: "quiet" }, "as a bar")), make("th", { scope: "col", class: "p" }, "now"), learned_column)),
    make("tbody", {}, ...bars.map((bar) => bar.line)));
  const lost = make("p");

  // The cache
  const stores = net.blocks.flatMap((_, l) => ["key", "value"].map((what) => {
    const map = canvas(`${what}s of layer ${l}`);
    const fresh = make("div", { class: "new" });
    return { l, what, map, fresh, whole: make("div", {}, make("p", {}, `${what === "key" ? "■" : "▲"} ${what}s of layer ${l}`), make("div", { class: "store" }, map, fresh)) };
  }));
  const counted = make("p");

  // Goals: a word that the model is sure of, if a single silent head makes it a guess; and another sure word.
  const start = state();
  const sure = (found) => {
    const p = probabilities(found.steps.at(-1).logits, 1);
    const top = Math.max(...p);
    return { token: p.indexOf(top), p: top, all: p };
  };
  const first = sure(compute(net, start.tokens, learned));
  const guess = (found) => {
    const p = sure(found).all[first.token];
    return p > 0.4 && p < 0.6;
  };
  const only = (i) => learned.map((_, j) => (j === i ? "silent" : ""));
  const unchanged = (tokens) => tokens.length === start.tokens.length && tokens.every((token, i) => token === start.tokens[i]);
  const possible = first.p > 0.9 && learned.some((_, i) => guess(compute(net, start.tokens, only(i))));
  const word = `“${named(first.token)}”`;
  const tries = goals([
    ...(possible ? [[`Silence one head only, so that ${word} becomes a guess: between 0.40 and 0.60.`, ({ tokens, acts }) =>
      unchanged(tokens) && acts.filter((act) => act === "silent").length === 1 && acts.every((act) => act === "" || act === "silent") && guess(after)]] : []),
    [`Change one word and no head, so that ${word} is no longer the likeliest next word.`, ({ tokens, acts }) =>
      acts.every((act) => act === "") && tokens.length === start.tokens.length && tokens.filter((token, i) => token !== start.tokens[i]).length === 1 && sure(before).token !== first.token],
  ].slice(0, start.tokens.length > 1 ? 2 : 0), start);
  const again = reset(model, ["_tokens", "_acts", "_shown", "_row", "_temperature"], (states) => change(states), () => {
    stop();
    rewrite();
    say(warm, "");
    tries.clear();
    draw();
    tell();
  });

  root.append(
    make("style", {}, LOOK),
    make("p", {}, `The model runs here, in this page. It knows ${words.length} words and reads at most ${most} tokens.`),
    field, make("div", {}, choose, shorter, one, on, make("label", { style: "white-space: nowrap" }, `temperature (0 to ${HOT}) `, heat)), why, warm, shelf,
    make("p", {}, "Choose a ● query token below: its arcs and numbers are its weights in the enlarged head."), make("div", {}, earlier, later), sentence,
    make("div", { class: "two" }, make("div", {}, every, scale(), make("p", {}, "Rows are ● queries, columns are ■ keys, grey keys are hidden.")), make("div", {}, next, lost)),
    make("div", { class: "two" }, enlarged, make("div", {}, acting.group, clear, same, tries.node)),
    make("div", { class: "cache", role: "group", "aria-label": "the cache" }, ...stores.map(({ whole }) => whole)),
    scale(REACH), make("p", {}, `A column is a token. Numbers above ${REACH} or below −${REACH} have the colours of the ends.`), counted, again);

  function change(states) {
    clearTimeout(pause);
    quiet = true;
    send(states);
    quiet = false;
    draw();
  }

  /** The text of the tokens, and no other. */
  function rewrite() {
    const { tokens } = state();
    box.value = written(tokens, words) + (tokens.length > 1 ? " " : "");
    say(problem, "");
    fit();
  }

  const weight = (i, row, j) => after.steps[row].layers[Math.floor(i / heads)].weights[i % heads][j];
  const pixel = (i) => {
    let [at, weights] = [-1];
    return (row, j) => {
      if (j > row) return null;
      if (row !== at) weights = after.steps[at = row].layers[Math.floor(i / heads)].weights[i % heads];
      return weights[j];
    };
  };

  function draw() {
    const now = state();
    const { tokens, acts, shown } = now;
    const n = tokens.length;
    const row = chosen(now);
    before = compute(net, tokens, learned, before);
    after = acts.every((act) => act === "") ? before : compute(net, tokens, acts, after);
    if (read(box.value, box.selectionStart).tokens.join() !== tokens.join()) {
      rewrite();
    }
    if (heard !== about()) speak("");

    // Slots and arcs
    let x = 0;
    const middles = tokens.map((token) => (x += wide[token]) - wide[token] / 2);
    const moved = sky.getAttribute("width") !== String(x);
    set(sky, { width: x, viewBox: `0 0 ${x} ${HIGH}` });
    slots.forEach(({ slot, word: name, weight: number }, i) => {
      slot.hidden = i >= n;
      if (i >= n) return set(arcs[i], { d: "" });
      slot.style.width = `${wide[tokens[i]]}px`;
      set(slot, { "aria-selected": i === row, tabindex: i === row ? 0 : -1 });
      say(name, named(tokens[i]));
      const w = i <= row ? weight(shown, row, i) : 0;
      shade(slot, i <= row ? w : null);
      say(number, i <= row ? show(w) : "hidden");
      const [a, b] = [middles[row], middles[i]];
      const up = HIGH - 6 - Math.min(HIGH - 14, 14 + Math.abs(a - b) * 0.16) * 1.25;
      const path = i === row ? `M${a - 9} ${HIGH} C${a - 12} ${HIGH - 34} ${a + 12} ${HIGH - 34} ${a + 9} ${HIGH}` : `M${a} ${HIGH} C${a} ${up} ${b} ${up} ${b} ${HIGH}`;
      set(arcs[i], { d: w >= 0.01 ? path : "", "stroke-width": (1 + 7 * w).toFixed(1) });
    });

    // Heads
    thumbs.forEach(({ map, act, pick, mute, whole }, i) => {
      paint(map, n, n, inks, pixel(i));
      say(act, MARKS[acts[i]]);
      set(whole, { class: `thumb ${acts[i]}` });
      set(pick, { "aria-pressed": i === shown });
      set(mute, { "aria-pressed": acts[i] === "silent" });
    });
    paint(large, n, n, inks, pixel(shown));
    set(large, { "aria-label": `weights of ${title(shown)}` });
    set(enlarged, { class: `enlarged ${acts[shown]}` });
    say(heading, title(shown));
    const names = n <= NAMED ? tokens.map(named) : tokens.map((token, i) => (i === row ? named(token) : ""));
    if (columns.childElementCount !== n) for (const side of [rows, columns]) side.replaceChildren(...names.map(() => make("span")));
    names.forEach((name, i) => {
      say(rows.children[i], name);
      say(columns.children[i], n <= NAMED ? name : "");
      set(rows.children[i], { class: i === row ? "now" : "" });
    });
    mark_row.style.top = `${(100 * row) / n}%`;
    mark_row.style.height = `max(4px, ${100 / n}%)`;
    acting.pick(acts[shown]);

    // The next word
    const changed = after !== before;
    const [p, old] = [after, before].map(({ steps }) => probabilities(steps.at(-1).logits, now.temperature));
    const order = ranked(p);
    bars.forEach((bar, r) => {
      bar.token = order[r];
      say(bar.add, named(bar.token));
      set(bar.add, { "aria-label": `add ${named(bar.token)}` });
      bar.bar.style.width = `${100 * p[bar.token]}%`;
      bar.was.style.left = `calc(${100 * old[bar.token]}% - 1px)`;
      bar.was.style.visibility = changed ? "visible" : "hidden";
      say(bar.p, show(p[bar.token]));
      say(bar.old, changed ? show(old[bar.token]) : "");
    });
    learned_column.style.visibility = changed ? "visible" : "hidden";
    say(caption, `probability of the word after “${named(tokens[n - 1])}”`);
    say(lost, losses());
    check();
    set(clear, { "aria-disabled": !changed });
    say(same, changed ? "" : "No head is changed.");
    if (document.activeElement !== heat) heat.value = now.temperature;

    // The cache: a column for each token
    for (const { l, what, map, fresh } of stores) {
      paint(map, width, n, inks, (i, j) => after.steps[j].layers[l][what][i] / REACH, "plus");
      map.style.width = `calc(${n} * min(6px, (100cqi - 20px) / ${most}))`;
      fresh.style.width = `${(100 * (n - after.kept)) / n}%`;
      fresh.style.visibility = after.kept < n ? "visible" : "hidden";
    }
    const size = 2 * layers * width * n;
    say(counted, `The cache holds a key and a value of ${width} numbers for each of ${n} tokens in ${layers} layers: ${size.toLocaleString("en-US")} numbers. Computed just now (in the frame): ${n - after.kept}. Kept from before: ${after.kept}.`);
    tries.look(now);
    if (slots.shown !== n) sentence.scrollLeft = x; // last, as it asks for the layout
    slots.shown = n;
    if (moved) ends();
  }

  function losses() {
    if (before.steps.length < 2) return "The loss needs a text of at least one word.";
    const was = loss(before);
    if (after === before) return `Loss on this text: ${show(was)} nats per token.`;
    return `Loss on this text: ${show(loss(after))} nats per token. With all heads as learned, it is ${show(was)}.`;
  }

  function looks() {
    const now = state();
    const row = chosen(now);
    const all = Array.from({ length: row + 1 }, (_, j) => weight(now.shown, row, j));
    const best = all.indexOf(Math.max(...all));
    return `In ${title(now.shown)}, ${named(now.tokens[row])} gives most weight to ${named(now.tokens[best])}, ${show(all[best])}.`;
  }

  function tell() {
    const { acts, temperature } = state();
    const p = probabilities(after.steps.at(-1).logits, temperature);
    const order = ranked(p).slice(0, 2);
    const done = acts.map((act, i) => (act ? `${title(i)}: ${act}. ` : "")).join("");
    voice(`${done}Next word: ${order.map((i) => `${named(i)} ${show(p[i])}`).join(", ")}. ${losses()}`);
  }

  draw();
  const leave = follow(model, ["_tokens", "_acts", "_shown", "_row", "_temperature"], () => { if (!quiet) draw(); });
  const watch = new ResizeObserver(() => { fit(); ends(); });
  watch.observe(root);
  return () => {
    stop();
    clearTimeout(pause);
    watch.disconnect();
    leave();
  };
}

export default { render };
