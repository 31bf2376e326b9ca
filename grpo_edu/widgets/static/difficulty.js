// The difficulty explorer: the weight of a prompt by its pass rate, at the group size in use.

import { advantagesOf, batchOf, lookup, need, sum, turned } from "./objective.js";
import {
  FRAME,
  asNumber,
  bar,
  chart,
  chooser,
  chosen,
  escaped,
  explorer,
  field,
  keyOf,
  more,
  number,
  percent,
  presetChoice,
  presetState,
  select,
  slider,
  tableOf,
} from "./shared.js";

const MANY = 4;
const LARGEST = 64;
const GRID = Array.from({ length: 99 }, (_, i) => (i + 1) / 100);
const FRAMES = {
  probability: { label: "of ∇p", factor: () => 1 },
  score: { label: "of the score gap: times p(1−p)", factor: (p) => p * (1 - p) },
  "log-probability": { label: "of ∇ log p: times p", factor: (p) => p },
};

/* What being right is worth when s of the other G-1 are right, s = 0 … G-1: the first of K right
   against the last of K-1 right. Every K stands in one batch, as in a large one. */
function gaps(spec, size) {
  const counts = [...Array(size + 1).keys()];
  const group = counts.flatMap((K) => Array(size).fill(K));
  const rewards = counts.flatMap((K) => Array.from({ length: size }, (_, j) => (j < K ? 1 : 0)));
  const advantage = advantagesOf(
    spec,
    batchOf({ rewards, group, lengths: rewards.map(() => 1), greedy: rewards.map(() => 0.5) }),
  );
  return counts.slice(1).map((K) => advantage[K * size] - advantage[K * size - 1]);
}

function binomial(n) {
  const row = [1];
  for (let k = 1; k <= n; k++) row.push((row[k - 1] * (n - k + 1)) / k);
  return row;
}
const terms = (row, p) => row.map((c, k) => c * p ** k * (1 - p) ** (row.length - 1 - k));

/* {ps, dead, lines}: one line per scheme, {name, weight, objective, w, h} on the grid of pass rates
   and at p, or {name, error}. */
export function answer(state) {
  const { schemes, specs, p, size, frame } = state;
  need(p > 0 && p < 1, "p", p, "a pass rate between 0 and 1, ends excluded");
  need(
    Number.isInteger(size) && size >= 2 && size <= LARGEST,
    "G",
    size,
    `a whole number, 2 to ${LARGEST}`,
  );
  need(schemes.length > 0, "the choice of schemes", "empty", "at least one");
  const one = binomial(size - 1);
  const all = binomial(size);
  const factor = lookup(FRAMES, "yardstick", { name: frame }).factor;
  const lines = schemes.map((name) => {
    try {
      const gap = gaps(turned(specs[name], state), size);
      const weight = (q) => factor(q) * sum(terms(one, q).map((c, s) => c * gap[s]));
      const objective = (q) => {
        const chance = terms(all, q);
        let tail = 0;
        let total = 0;
        for (let s = size - 1; s >= 0; s--) {
          tail += chance[s + 1];
          total += gap[s] * tail;
        }
        return total / size;
      };
      return {
        name,
        weight: GRID.map(weight),
        objective: GRID.map(objective),
        w: weight(p),
        h: objective(p),
      };
    } catch (error) {
      return { name, error: error.message };
    }
  });
  const dead = (q) => q ** size + (1 - q) ** size;
  return { ps: GRID, lines, dead: GRID.map(dead), silent: dead(p) };
}

// ---- the picture ----

const panel = (name, aside, extra = "") =>
  `<section data-panel="${name.split(" ")[0]}"${extra}><h4>${name}<span class="soft">${aside}</span>
  </h4><div class="plot"></div></section>`;

/* The axis of a plot: from 0 or below to the largest value, at most 8. */
const heightOf = (lines) => {
  const values = lines.flatMap((l) => l.values);
  const high = Math.min(8, 1.08 * Math.max(0.1, ...values));
  return { low: Math.min(0, ...values), high };
};

function draw(root, s, { lines, dead, silent }, id) {
  const good = lines.filter((l) => !l.error).map((l) => ({ ...l, label: s.specs[l.name].label }));
  const picture = root.querySelector(".picture");
  const errors = lines
    .filter((l) => l.error)
    .map(({ name, error }) => `${escaped(s.specs[name].label)}: ${escaped(error)}`)
    .map((text) => `<p class="message" role="alert">${text}</p>`);
  const notes = good.map((l) => ({
    ...l,
    note: `weight ${number(l.w)}, objective ${number(l.h)}`,
  }));
  picture.innerHTML = `${errors.join("")}${keyOf(notes)}
    <p class="note" data-silent="${silent}">At p = ${number(s.p)}, G = ${s.size}: a group is all
    right or all wrong, so without a signal to whoever compares, with probability
    ${percent(silent).replace("+", "")}.</p>
    <div class="panels" style="--count: 3">
    ${panel("weight w", `relative to the size ${FRAMES[s.frame].label}`)}
    ${panel("objective h", "what is climbed: h′ = w", ' class="aside"')}
    ${panel("dead groups", "pᴳ + (1−p)ᴳ")}</div>
    <p class="soft">exact, right/wrong rewards, independent completions</p>`;
  const w = good.map((l) => ({ name: l.label, values: l.weight, at: l.w }));
  const h = good.map((l) => ({ name: l.label, values: l.objective, at: l.h }));
  const d = [{ name: "dead groups", values: dead, at: silent }];
  const x = { values: GRID, low: 0, high: 1, label: "pass rate p" };
  const plots = [...picture.querySelectorAll(".plot")];
  const widths = plots.map((plot) => Math.max(240, Math.floor(plot.clientWidth)));
  [
    [w, heightOf(w), "weight by pass rate"],
    [h, heightOf(h), "objective by pass rate"],
    [d, { low: 0, high: 1.02 }, "probability of a group without a signal"],
  ].forEach(([some, y, title], k) => {
    plots[k].innerHTML = chart({
      width: widths[k],
      height: s.compact ? 200 : 250,
      x,
      y,
      lines: some,
      now: s.p,
      title,
      id: `${id}-${k}`,
    });
  });
  root.querySelector(".table").innerHTML = tableOf(
    [
      "scheme",
      "weight at p",
      "objective at p",
      ...[0.1, 0.3, 0.5, 0.7, 0.9].map((p) => `weight at ${p}`),
    ],
    good.map((l) => [
      l.label,
      number(l.w),
      number(l.h),
      ...[9, 29, 49, 69, 89].map((i) => number(l.weight[i])),
    ]),
  );
}

// ---- the controls ----

const controls = (s) =>
  bar(presetChoice(s)) +
  more(chooser("schemes", "scheme", s.specs, MANY)) +
  bar(
    slider("p", "pass rate p", 'min="0.01" max="0.99" step="0.01"'),
    slider("size", "group size G", `min="2" max="${LARGEST}" step="1"`),
  ) +
  more(
    select(
      "frame",
      "yardstick",
      Object.keys(FRAMES).map((name) => [name, name]),
    ),
    select("ddof", "std divides by", [
      ["1", "G − 1 (ddof 1)"],
      ["0", "G (ddof 0)"],
    ]),
    field("eps", "eps added to a std", 'min="0" step="0.0001"'),
    field("k", "k of pass@k", 'min="1" step="1"'),
  );

function shown(key, s, i) {
  if (key === "schemes") return { value: s.schemes[i] ?? "none" };
  if (key === "p") return { value: s.p, text: s.p.toFixed(2) };
  return { value: key === "ddof" ? String(s.ddof) : s[key] };
}

const changes = {
  preset: presetState,
  schemes: chosen("schemes", MANY),
  p: (input) => ({ p: Number(input.value) }),
  size: (input) => ({ size: Number(input.value) }),
  frame: (input) => ({ frame: input.value }),
  ddof: (input) => ({ ddof: Number(input.value) }),
  eps: asNumber("eps", "eps", { min: 0 }),
  k: asNumber("k", "k", { min: 1, max: LARGEST, whole: true }),
};

const keys = ["specs", "schemes", "p", "size", "frame", "ddof", "eps", "k", ...FRAME];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
