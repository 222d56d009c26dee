// A query and a key at two positions: each pair of columns is a dial with two hands, and a part of the score.

import { choice, clip, dot, fill, follow, frame, goals, handle, make, reset, say, sender, set, show, thumb } from "./shared.js";

const TEXT = {
  name: "Explorable: the score of a query and a key at two positions",
  intro: "Drag the query ●, the key ■, or both together by the handle ↔. Or select one and use the arrow keys. Each dial shows one pair of columns, of the query and of the key, as two hands. Below it is its part of the dot product: length × length × cos angle. The numbers shown are rounded; the picture computes with all digits.",
  kinds: { rotary: "rotary", sinusoidal: "sinusoidal", alibi: "ALiBi" },
  shown: {
    rotary: "Rotary: at position p, each hand is turned by the angle p × θ, in radians. Each pair has its own θ. Dotted: the hand before it is turned.",
    sinusoidal: "Sinusoidal: row p of a table P is added at position p. For each pair, the row holds sin(p × θ) and cos(p × θ): a step of length 1. Dotted: the hand without its position, and then this step. (A model adds P before it computes queries and keys. Here P is added to them directly.)",
    alibi: "ALiBi: no hand moves. The score loses slope × |distance|, and |distance| is the distance without its sign. The slope is one fixed number for each attention head; this picture shows one head.",
  },
  query: "query at {p}", key: "key at {p}", stuck: "no room to move both", positions: "positions",
  movers: ["position of the query", "position of the key", "both positions"],
  moved: "{value}, score {score:2}", both: "query at {i}, key at {j}, score {score:2}", full: "query at {i}, key at {j}, no room to move both, score {score:2}",
  axis: "distance: key − query", apart: "distance {j} − {i} = {distance:0}", pair: "pair {r}", turned: "pair {r}, θ = {theta:3}",
  product: "{a:2} × {b:2} × cos {angle:2}", part: "= {part:2}",
  score: "score = ({sum}) /\u00a0√{d}\u00a0=\u00a0{score:2}", less: "score = ({sum}) /\u00a0√{d}\u00a0−\u00a0{slope:3}\u00a0×\u00a0|{distance:0}|\u00a0=\u00a0{score:2}",
  four: "The sum in brackets is query · key + query · P[{j}] + P[{i}] · key + P[{i}] · P[{j}] = {sum}.",
  curve: "score, for the query at {i}",
  ring: "Ring: the score now. Grey: scores you have seen. {high:1} and {low:1} are the ends of the scale for {kind}; the dials and the bars have one scale for all three.",
  told: "Query at {i}, key at {j}, distance {distance:0}: score {score:2}.",
  aims: [
    ["Rotary: move both tokens together, by 5 positions or more. What changes, and what does not?", "The hands turned. The angle between the two hands of a pair stayed, and so did its part and the score."],
    ["Rotary: move only the key, and stop at the top of the curve.", "No other position of the key gives this query a larger score. It need not be at distance 0."],
    ["Sinusoidal: move both tokens together until the score has changed by 0.5 or more.", "The distance stayed, but query · P and P · key changed: they depend on each position, not only on the distance."],
    ["ALiBi: find two distances that give the same score.", "They differ only in the sign, and ALiBi uses the distance without its sign."],
    ["ALiBi: move both tokens together, by 5 positions or more. What changes?", "Nothing: no hand depends on a position, and the distance stayed."],
  ],
};
const { abs, acos, atan2, cos, hypot, max, min, round, sin, sqrt } = Math;
const LAST = 31; // positions are 0 to 31
const [WIDE, HIGH, LEFT] = [320, 170, 44]; // of the curve, and of its labels
const COLOURS = ["var(--query)", "var(--key)"];
const FAINT = ["query", "key"].map((name) => `color-mix(in srgb, var(--${name}) 65%, currentColor)`); // for thin lines

/** The hand of one pair of columns, at a position that turns by this angle. */
const hand = ([a, b], angle, kind) => {
  const [c, s] = [cos(angle), sin(angle)];
  return { rotary: [a * c - b * s, a * s + b * c], sinusoidal: [a + s, b + c], alibi: [a, b] }[kind];
};

/** All numbers for one query and one key; `at` has their positions. */
export function compute({ query, key, at, kind, base, slope }) {
  const pairs = Array.from({ length: query.length / 2 }, (_, r) => {
    const theta = base ** ((-2 * r) / query.length);
    const own = [query, key].map((x) => x.slice(2 * r, 2 * r + 2));
    const hands = own.map((pair, token) => hand(pair, at[token] * theta, kind));
    const lengths = hands.map((one) => hypot(...one));
    const part = dot(...hands);
    return { theta, own, hands, lengths, part, angle: part && acos(clip(part / lengths[0] / lengths[1], -1, 1)) };
  });
  const distance = at[1] - at[0];
  const penalty = kind === "alibi" ? slope * abs(distance) : 0;
  const sum = pairs.reduce((all, { part }) => all + part, 0);
  return { pairs, distance, penalty, score: sum / sqrt(query.length) - penalty };
}

/** The four products that (query + P) · (key + P) is the sum of. */
export function products({ pairs }) {
  const total = ([a, b]) => pairs.reduce((all, { own, hands }) => {
    const sides = own.map((x, token) => [x, hands[token].map((y, c) => y - x[c])]);
    return all + dot(sides[0][a], sides[1][b]);
  }, 0);
  return [[0, 0], [0, 1], [1, 0], [1, 1]].map(total);
}

const line = (attributes) => make("line", { stroke: "var(--line)", ...attributes });
const word = (attributes, text = "") => make("text", attributes, text);
/** Numbers as a sum for reading. */
const added = (row) => row.map((x, i) => {
  const least = Number(x.toFixed(2)) < 0;
  return i ? `${least ? "−" : "+"} ${show(abs(x))}` : show(x);
}).join(" ");
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const dots = (points) => points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");

const LOOK = `
.mha-positions {
.strip { position: relative; height: 154px; margin: 0 18px; svg { width: 100%; height: 100%; overflow: visible; }
:is(.grip, .handle) { position: absolute; height: 44px; margin: 0; } .grip { appearance: none; background: none; left: 0; width: 100%; pointer-events: none; }
${thumb(".grip", "width: 0; border: 0;")}
.handle { width: 44px; margin-left: -22px; cursor: ew-resize; touch-action: pan-y; }
.grip:focus-visible { outline: none; } .grip:focus-visible:not(.held) + .handle::after { content: ""; position: absolute; inset: 10px; outline: 3px solid var(--accent); border-radius: 14px; }
.grip:nth-of-type(3) + .handle::after { inset: 9px 0 !important; }
text { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; } .over { stroke-width: 10px; } }
.sum { font-weight: 600; font-variant-numeric: tabular-nums; min-height: 2.8em; } .kinds { display: grid; } .kinds p { grid-area: 1 / 1; } :is(.kinds p, .four)[aria-hidden=true] { visibility: hidden; } .four { min-height: 4.2em; }
.dials { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 8px; margin: 8px 0; text-align: center; font-variant-numeric: tabular-nums;
svg { display: block; width: 140px; margin: 2px auto; } .length { height: 8px; width: 140px; margin: 2px auto; position: relative; }
.length::before { content: ""; position: absolute; left: 50%; top: -2px; bottom: -2px; border-left: 1px solid var(--line); } .length div { position: absolute; height: 8px; background: currentColor; }
.small { font-size: 12px; white-space: nowrap; } } .below { display: grid; gap: 8px 24px; } .curve { width: 320px; max-width: 100%; overflow: visible; }
@container mha (width >= 640px) { .below { grid-template-columns: 320px 1fr; } .four { min-height: 2.8em; } .sum { min-height: 0; } }
}`;

function render({ model, el }) {
  const get = (name) => model.get(`_${name}`);
  const [query, key, base, slope] = ["query", "key", "base", "slope"].map(get);
  const send = sender(model, el);
  const { root, speak } = frame(el, TEXT.name);
  root.classList.add("mha-positions");
  const numbers = (at = get("at"), kind = get("kind")) => compute({ query, key, at, kind, base, slope });
  const every = Array.from({ length: LAST + 1 }, (_, p) => p);
  const known = {};
  /** The least and the largest score at all positions, and the most that a shift of both changes. */
  const limits = (kind) => {
    const scores = every.map((i) => every.map((j) => numbers([i, j], kind).score));
    const flat = scores.flat();
    const shifts = scores.flatMap((row, i) => row.map((x, j) => abs(x - scores[i - min(i, j)][j - min(i, j)])));
    return { low: min(0, ...flat), high: max(0, ...flat), change: max(...shifts) };
  };
  const range = (kind) => (known[kind] ??= limits(kind));
  let seen = new Map(); // distances and scores since the kind was chosen
  let from = null; // where both were when their distance changed last

  // The strip: two tokens, and what moves both
  const place = (p) => `${(100 * (p + 0.5)) / (LAST + 1)}%`;
  const tokens = [
    { y: 22, name: TEXT.query, mark: make("circle", { r: 9, cy: 22, fill: COLOURS[0] }) },
    { y: 110, name: TEXT.key, mark: make("rect", { width: 16, height: 16, y: 102, fill: COLOURS[1], transform: "translate(-8 0)" }) },
  ];
  tokens.forEach((token) => { token.text = word({ y: token.y - 8 }); token.drop = line({ y1: token.y, y2: 66, "stroke-dasharray": "2 3" }); });
  const bar = line({ y1: 66, y2: 66, stroke: "currentColor", "stroke-width": 2 });
  const pill = make("rect", { y: 55, width: 40, height: 22, rx: 11, fill: "var(--ground)", stroke: "currentColor", transform: "translate(-20 0)" });
  const arrows = word({ y: 71, "text-anchor": "middle" }, "↔");
  const [apart, stuck] = [word({ class: "over", y: 46 }), word({ x: "50%", y: 93, "text-anchor": "middle" }, TEXT.stuck)];
  const strip = make("svg", { "aria-hidden": true },
    ...tokens.map(({ y }) => line({ x1: place(0), x2: place(LAST), y1: y, y2: y })),
    ...every.map((p) => line({ x1: place(p), x2: place(p), y1: 128, y2: p % 5 ? 131 : 134 })),
    ...every.filter((p) => p % 5 === 0).map((p) => word({ x: place(p), y: 148, "text-anchor": "middle" }, p)),
    ...tokens.map(({ drop }) => drop), bar, pill, arrows, apart, stuck, ...tokens.flatMap(({ text, mark }) => [text, mark]));

  /** A slider for the keyboard under a handle for the pointer. `moved` gives the positions after so many steps. */
  const mover = (label, top, moved) => {
    const grip = make("input", { type: "range", class: "grip", step: 1, "aria-label": label, style: `top: ${top}px`, onkeydown: () => grip.classList.remove("held"), onchange: () => end(grip),
      oninput: () => move(moved(get("at"), grip.valueAsNumber - grip.shown)) });
    grip.handle = handle(() => {
      grip.classList.add("held"); // a ring is for the keyboard
      grip.focus({ preventScroll: true });
      return [get("at"), strip.getBoundingClientRect().width / (LAST + 1)];
    }, (way, [at, unit]) => move(moved(at, round(way / unit))), ([at], scrolls) => { if (scrolls) move(at); else if (String(at) !== String(get("at"))) end(grip); });
    return grip;
  };
  const inside = (p) => clip(p, 0, LAST);
  const grips = [
    mover(TEXT.movers[0], 0, ([i, j], steps) => [inside(i + steps), j]),
    mover(TEXT.movers[1], 88, ([i, j], steps) => [i, inside(j + steps)]),
    mover(TEXT.movers[2], 44, ([i, j], steps) => { const by = clip(steps, -min(i, j), LAST - max(i, j)); return [i + by, j + by]; }),
  ];

  // A dial for each pair of columns
  const dials = numbers().pairs.map(() => {
    const own = FAINT.map((stroke) => make("path", { stroke, fill: "none", "stroke-width": 2, "stroke-dasharray": "3 3" }));
    const hands = COLOURS.map((stroke) => line({ x1: 70, y1: 70, stroke, "stroke-width": 3 }));
    const tips = [make("circle", { r: 6, fill: COLOURS[0] }), make("rect", { width: 11, height: 11, fill: COLOURS[1], transform: "translate(-5.5 -5.5)" })];
    const [arc, name, product, part, length] = [make("path", { fill: "none", stroke: "currentColor" }), make("div"), make("div", { class: "small" }), make("strong"), make("div")];
    const svg = make("svg", { viewBox: "0 0 140 140", "aria-hidden": true }, make("circle", { cx: 70, cy: 70, r: 66, fill: "none", stroke: "var(--line)" }), ...own, arc, ...hands, ...tips);
    const node = make("div", {}, name, svg, product, part, make("div", { class: "length", "aria-hidden": true }, length));
    return { own, hands, tips, arc, name, product, part, length, node };
  });

  // The score against the distance
  const [trail, joined, points] = [
    { stroke: "currentColor", "stroke-width": 5, "stroke-linecap": "round", opacity: 0.45 },
    { stroke: "var(--accent)", fill: "none", "stroke-width": 1.5 },
    { stroke: "var(--accent)", "stroke-width": 4, "stroke-linecap": "round" },
  ].map((attributes) => make("path", attributes));
  const here = make("circle", { r: 6, fill: "none", stroke: "currentColor", "stroke-width": 2.5 });
  const across = (distance) => LEFT + ((distance + LAST) / (2 * LAST)) * (WIDE - LEFT - 10);
  const zero = line({ x1: LEFT, x2: WIDE });
  const levels = ["low", "high"].map((end) => [end, word({ x: LEFT - 6, "text-anchor": "end" })]);
  const title = word({ x: LEFT, y: 12 });
  const curve = make("svg", { class: "curve", viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": true }, title, zero, line({ x1: across(0), x2: across(0), y1: 22, y2: HIGH - 34 }),
    ...levels.map(([, text]) => text), ...[-30, -15, 0, 15, 30].map((d) => word({ x: across(d), y: HIGH - 20, "text-anchor": "middle" }, show(d, 0))),
    word({ x: across(0), y: HIGH - 4, "text-anchor": "middle" }, TEXT.axis), trail, joined, points, here);

  const kinds = choice(TEXT.positions, Object.entries(TEXT.kinds), (kind) => { send({ _kind: kind }); tell(); });
  const explained = Object.entries(TEXT.shown).map(([kind, text]) => [kind, make("p", {}, text)]);
  const [sum, four, axis] = [make("p", { class: "sum" }), make("p", { class: "four" }), make("p")];
  let now = {}; // what the goals test
  const tries = goals([
    [true, "rotary", ({ shift }) => shift >= 5],
    [range("rotary").high > range("rotary").low, "rotary", ({ score, top, ended }) => ended === 1 && score > top - 1e-9],
    [range("sinusoidal").change > 1, "sinusoidal", ({ change }) => change >= 0.5],
    [slope !== 0, "alibi", ({ distance, twin }) => distance !== 0 && twin],
    [true, "alibi", ({ shift }) => shift >= 5],
  ].map(([possible, kind, met], i) => possible && [TEXT.aims[i][0], (now) => now.kind === kind && now.moves > 1 && met(now), TEXT.aims[i][1]]).filter(Boolean), now);
  const again = reset(model, ["_at", "_kind"], send, () => {
    forget();
    tries.clear();
    draw();
    tell();
  });
  root.append(make("style", {}, LOOK), make("p", {}, TEXT.intro), kinds.group, make("div", { class: "kinds" }, ...explained.map(([, node]) => node)),
    make("div", { class: "strip" }, strip, ...grips.flatMap((grip) => [grip, grip.handle])), sum, make("div", { class: "dials" }, ...dials.map(({ node }) => node)),
    make("div", { class: "below" }, make("div", {}, curve, axis), make("div", {}, tries.node, again)), four);

  function forget() {
    seen = new Map();
    from = null;
  }

  function draw() {
    const [at, kind] = [get("at"), get("kind")];
    const [i, j] = at;
    const all = numbers(at, kind);
    const { pairs, distance, penalty, score } = all;
    if (from?.kind !== kind) forget();
    if (from?.distance !== distance) from = { kind, distance, score, i };
    seen.set(`${distance} ${show(score, 3)}`, [distance, score]);

    tokens.forEach(({ name, mark, text, drop }, t) => {
      const x = place(at[t]);
      set(mark, t ? { x } : { cx: x });
      set(drop, { x1: x, x2: x });
      set(text, { x, dx: at[t] > LAST / 2 ? -16 : 16, "text-anchor": at[t] > LAST / 2 ? "end" : "start" });
      say(text, fill(name, { p: at[t] }));
    });
    const middle = (i + j) / 2;
    set(bar, { x1: place(i), x2: place(j) });
    [pill, arrows].forEach((node) => set(node, { x: place(middle) }));
    const side = middle < 7 ? -1 : Number(middle > LAST - 7);
    set(apart, { x: place(middle), dx: 20 * side, "text-anchor": ["start", "middle", "end"][side + 1] });
    const full = abs(distance) === LAST;
    set(stuck, { visibility: full ? "visible" : "hidden" });
    [pill, arrows].forEach((node) => set(node, { opacity: full ? 0.5 : 1 }));
    say(apart, fill(TEXT.apart, { i, j, distance }));
    grips.forEach((grip, g) => {
      const value = at[g % 2];
      grip.shown = value;
      set(grip, { min: g === 2 ? max(0, -distance) : 0, max: g === 2 ? LAST - max(0, distance) : LAST,
        "aria-valuetext": fill(g < 2 ? TEXT.moved : full ? TEXT.full : TEXT.both, { value, i, j, score }) });
      grip.value = value;
      grip.handle.style.left = place(g === 2 ? middle : value);
      grip.handle.style.top = grip.style.top;
    });

    const reach = max(...pairs.flatMap(({ own }) => own.map((x) => hypot(...x)))) + 1;
    const spot = ([x, y]) => [70 + (58 * x) / reach, 70 - (58 * y) / reach];
    const widest = max(...pairs.map(({ own }) => (hypot(...own[0]) + 1) * (hypot(...own[1]) + 1)));
    pairs.forEach(({ theta, own, hands, lengths, part, angle }, r) => {
      const dial = dials[r];
      hands.forEach((one, t) => {
        const [x, y] = spot(one);
        set(dial.hands[t], { x2: x, y2: y });
        set(dial.tips[t], t ? { x, y } : { cx: x, cy: y });
        set(dial.own[t], { d: kind === "alibi" ? "" : path([[70, 70], spot(own[t]), ...(kind === "rotary" ? [] : [[x, y]])]) });
      });
      const ends = hands.map(([x, y]) => atan2(y, x)).map((t) => [70 + 16 * cos(t), 70 - 16 * sin(t)]);
      const turn = hands[0][0] * hands[1][1] - hands[0][1] * hands[1][0] > 0 ? 0 : 1; // from the query to the key, the short way
      set(dial.arc, { d: `M${ends[0].join(" ")}A16 16 0 0 ${turn} ${ends[1].join(" ")}` });
      say(dial.name, fill(kind === "alibi" ? TEXT.pair : TEXT.turned, { r, theta }));
      say(dial.product, fill(TEXT.product, { a: lengths[0], b: lengths[1], angle }));
      say(dial.part, fill(TEXT.part, { part }));
      Object.assign(dial.length.style, { left: `${50 + min(0, (50 * part) / widest)}%`, width: `${abs((50 * part) / widest)}%` });
    });
    say(sum, fill(penalty ? TEXT.less : TEXT.score, { sum: added(pairs.map(({ part }) => part)), d: query.length, slope, distance, score }));
    say(four, fill(TEXT.four, { i, j, sum: added(products(all)) }));
    [["sinusoidal", four], ...explained].forEach(([name, node]) => set(node, { "aria-hidden": name !== kind }));

    const { low, high } = range(kind);
    const down = (x) => HIGH - 38 - ((x - low) / (high - low || 1)) * (HIGH - 64);
    const row = every.map((j) => numbers([i, j], kind).score);
    const spots = row.map((x, j) => [across(j - i), down(x)]);
    set(joined, { d: path(spots) });
    set(points, { d: dots(spots) });
    set(trail, { d: dots([...seen.values()].map(([d, x]) => [across(d), down(x)])) });
    set(here, { cx: across(distance), cy: down(score) });
    set(zero, { y1: down(0), y2: down(0) });
    levels.forEach(([end, text]) => { set(text, { y: down({ low, high }[end]) + 4 }); say(text, show({ low, high }[end], 1)); });
    say(title, fill(TEXT.curve, { i }));
    say(axis, fill(TEXT.ring, { high, low, kind: TEXT.kinds[kind] }));
    kinds.pick(kind);
    now = { kind, distance, score, top: max(...row), moves: seen.size + abs(i - from.i), shift: abs(i - from.i), change: abs(score - from.score),
      twin: [...seen.values()].some(([d]) => d === -distance) };
    tries.look(now);
  }

  function move(at) {
    send({ _at: at });
  }

  /** A grip was let go, at another place. */
  function end(grip) {
    tries.look({ ...now, ended: grips.indexOf(grip) });
    tell();
  }

  function tell() {
    const [[i, j], { distance, score }] = [get("at"), numbers()];
    speak(fill(TEXT.told, { i, j, distance, score }));
  }

  draw();
  return follow(model, ["_at", "_kind"], draw);
}

export default { render };
