// The aggregation explorer: one gradient weight per completion token, for up to four recipes side by side.

import { isDead, need, perPrompt, pushOf, sum } from "./objective.js";
import {
  asNumber,
  attributes,
  bar,
  chooser,
  chosen,
  colour,
  escaped,
  explorer,
  field,
  grown,
  halves,
  mark,
  named,
  number,
  parse,
  percent,
  replaced,
  signed,
  slider,
  tableOf,
  tick,
  traitOf,
} from "./shared.js";

export const LONGEST = 64;
const MANY = 4;

// The clip of the controls in place of the recipe's own; null leaves its own. CISPO's bounds are absolute, the controls offsets from 1.
export function clipOf(surrogate, low, high) {
  if ("eps_low" in surrogate)
    return {
      ...surrogate,
      eps_low: low ?? surrogate.eps_low,
      eps_high: high ?? surrogate.eps_high,
    };
  if (!("high" in surrogate)) return surrogate;
  return {
    ...surrogate,
    low: low === null ? surrogate.low : Math.max(0, 1 - low),
    high: high === null ? surrogate.high : 1 + high,
  };
}

// `parts` micro-batches of nearly equal size, cut in order: (5, 2) -> 0 0 0 1 1
const split = (rows, parts) => {
  const small = Math.floor(rows / parts);
  const large = rows % parts;
  return Array.from({ length: parts }, (_, b) => Array(small + (b < large)).fill(b)).flat();
};

function check({ recipes, lengths, rewards, group, ratio, length_limit, micro_batches }) {
  const n = lengths.length;
  need(n >= 1 && n <= 8, "the number of completions", n, "1 to 8");
  for (const [name, values] of Object.entries({ rewards, group, ratio })) {
    if (values.length !== n)
      throw new Error(
        `${name} has ${values.length} entries but there are ${n} completions: expected one each.`,
      );
  }
  lengths.forEach((x, i) =>
    need(
      Number.isInteger(x) && x >= 1 && x <= LONGEST,
      `length of completion ${i + 1}`,
      x,
      `1 to ${LONGEST}`,
    ),
  );
  ratio.forEach((x, i) =>
    need(x > 0 && Number.isFinite(x), `ratio of completion ${i + 1}`, x, "a positive number"),
  );
  need(
    length_limit >= Math.max(...lengths),
    "C",
    length_limit,
    `at least ${Math.max(...lengths)}, the longest completion`,
  );
  need(
    micro_batches >= 1 && micro_batches <= n,
    "micro-batches",
    micro_batches,
    `1 to ${n}, the number of completions`,
  );
  need(recipes.length > 0, "the choice of recipes", "empty", "at least one");
}

/* One answer per recipe, {name, advantage, W, ratio, gate, push, share, clipped, dead, total} with one number per
   completion (push: on each of its tokens; share: of the step's push, signed), or {name, error}. Throws on a state that is wrong. */
export function answer(state) {
  check(state);
  return state.recipes.map((name) => {
    try {
      return { name, ...pushes(state.specs[name], state) };
    } catch (error) {
      return { name, error: error.message };
    }
  });
}

function pushes(
  spec,
  { lengths, rewards, group, ratio, eps_low, eps_high, length_limit, micro_batches },
) {
  if (spec.rewards.length) throw new Error("the explorer does not draw reward shaping.");
  const r = pushOf(
    { ...spec, surrogate: clipOf(spec.surrogate, eps_low, eps_high) },
    {
      rewards,
      lengths,
      group,
      logRatio: lengths.map((n, i) => Array(n).fill(Math.log(ratio[i]))),
      limit: length_limit,
      micro: split(lengths.length, micro_batches),
    },
  );
  const first = (values) => values.map((row) => row[0]);
  const dead = perPrompt(r.batch, rewards, isDead);
  return {
    advantage: first(r.advantage),
    W: first(r.W),
    ratio: first(r.ratio),
    gate: first(r.gate),
    push: first(r.push),
    total: r.total,
    share: r.share.map(sum),
    clipped: r.gate.map((gate, i) => gate[0] === 0 && r.advantage[i][0] !== 0),
    dead: dead.map((is, i) => is && r.advantage[i][0] === 0),
  };
}

// ---- the pictures ----

const perToken = (x, relative) => (relative && x !== 0 ? `${signed(x)} %` : signed(x));
const product = (r, i) =>
  `A ${signed(r.advantage[i])} · W ${number(r.W[i])} · ratio ${number(r.ratio[i])} · ` +
  `gate ${number(r.gate[i])} = ${signed(r.push[i])}`;
const ROW = 24;
const TOP = 22;

function panel(result, state, { width, largest, id }) {
  const { lengths, group, relative } = state;
  const n = lengths.length;
  const left = 14 + 6.5 * Math.max(...lengths.map((_, i) => named(state, i).length));
  const right = 144;
  const columns = Math.max(8, 8 * Math.ceil(Math.max(...lengths) / 8));
  const cell = (width - left - right) / columns;
  const gap = cell > 5 ? 1 : 0;
  const bottom = TOP + ROW * n;
  const places = [1, ...[1, 2, 3, 4].map((k) => (k * columns) / 4)];
  const row = (i) => {
    const y = TOP + ROW * i;
    const shown = relative && result.total ? (100 * result.push[i]) / result.total : result.push[i];
    const fill = result.clipped[i] ? `url(#${id})` : colour(shown, largest);
    const cells = Array.from(
      { length: lengths[i] },
      (
        _,
        t, // one path for the row: 64 rects each would be most of the work of a frame
      ) =>
        `M${(left + t * cell).toFixed(2)} ${y + 3}h${(cell - gap).toFixed(2)}v${ROW - 6}h${(gap - cell).toFixed(2)}z`,
    ).join("");
    return `<g class="row" data-row="${i}" data-push="${result.push[i]}" data-share="${result.share[i]}">
      <title>completion ${i + 1}, each of its ${lengths[i]} tokens: ${product(result, i)}</title>
      <rect class="back" x="0" y="${y}" width="${width}" height="${ROW}"/>
      <text x="${left - 8}" y="${y + 16}" text-anchor="end">${named(state, i)}</text>
      <path class="cells" data-cells="${lengths[i]}" fill="${fill}" d="${cells}"/>
      <rect class="edge" x="${left}" y="${y + 2.5}" width="${(lengths[i] * cell).toFixed(2)}" height="${ROW - 5}"/>
      <text x="${width - 64}" y="${y + 16}" text-anchor="end">${perToken(shown, relative)}</text>
      <text x="${width - 4}" y="${y + 16}" text-anchor="end">${percent(result.share[i])}</text></g>`;
  };
  const rule = (i) =>
    i > 0 && group[i] !== group[i - 1]
      ? `<line class="rule" x1="0" x2="${width}" y1="${TOP + ROW * i}" y2="${TOP + ROW * i}"/>`
      : "";
  const summary = lengths.map(
    (_, i) =>
      `completion ${i + 1} ${perToken(result.push[i], false)} per token, ${percent(result.share[i])} of the step`,
  );
  return `<svg role="img" width="${width}" height="${bottom + 30}"><title>${escaped(state.specs[result.name].label)}: ${summary.join("; ")}</title>
    <defs><pattern id="${id}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect class="hatch-back" width="5" height="5"/><line class="hatch" x1="0" x2="0" y1="0" y2="5"/></pattern></defs>
    <text class="soft" x="${width - 64}" y="14" text-anchor="end">push / token</text>
    <text class="soft" x="${width - 4}" y="14" text-anchor="end">share</text>
    ${lengths.map((_, i) => row(i) + rule(i)).join("")}
    ${places.map((t) => `<text class="soft" x="${(left + (t - 0.5) * cell).toFixed(1)}" y="${bottom + 13}" text-anchor="middle">${t}</text>`).join("")}
    <text class="soft" x="${left + (columns * cell) / 2}" y="${bottom + 27}" text-anchor="middle">token position</text></svg>`;
}

function notes(result, state) {
  const dead = [...new Set(state.group.filter((_, i) => result.dead[i]))];
  const prompts = new Set(state.group).size;
  const out = dead.map(
    (q) => `${prompts > 1 ? `prompt ${q + 1}: ` : ""}every reward is equal: no signal`,
  );
  if (result.clipped.some(Boolean)) {
    out.push(
      `clipped, so no gradient: completion ${result.clipped.flatMap((c, i) => (c ? [i + 1] : [])).join(", ")}`,
    );
  }
  return out.map((text) => `<p class="note">${text}</p>`).join("");
}

const legend = (
  largest,
  relative,
) => `<span>pushed down</span><span>${perToken(-largest, relative)}</span><i class="ramp"></i>
  <span>${perToken(largest, relative)}</span><span>pushed up</span><i class="hatched"></i><span>clipped: no gradient</span>
  <span class="soft">${relative ? "push per token in percent of the recipe's step" : "push per token = gradient weight"}, one colour scale for all panels; exact</span>`;

function draw(root, s, results, id) {
  const good = results.filter((r) => !r.error);
  const percentOf = (total) => (total ? 100 / total : 0);
  const scale = (r) => (s.relative ? percentOf(r.total) : 1);
  const largest = Math.max(0, ...good.flatMap((r) => r.push.map((w) => Math.abs(w) * scale(r))));
  root.querySelector(".picture").innerHTML =
    `<div class="legend">${good.length ? legend(largest, s.relative) : ""}</div>
    <div class="panels" style="--count: ${results.length > 3 ? 2 : results.length}">${results
      .map(
        (r) => `<section data-recipe="${escaped(r.name)}">
      <h4>${escaped(s.specs[r.name].label)} <span class="soft">W = ${escaped(s.specs[r.name].formula)}</span></h4><div class="plot"></div></section>`,
      )
      .join("")}</div>`;
  const plots = [...root.querySelectorAll(".plot")];
  const widths = plots.map((plot) => Math.max(300, Math.floor(plot.clientWidth)));
  plots.forEach((plot, k) => {
    const r = results[k];
    plot.innerHTML = r.error
      ? `<p class="message" role="alert">${escaped(r.error)}</p>`
      : `${panel(r, s, { width: widths[k], largest, id: `${id}-${k}` })}<p class="why" data-panel="${k}"></p>${notes(r, s)}`;
  });
  const head = [
    "recipe",
    "completion",
    "reward",
    "length",
    "A",
    "W",
    "ratio",
    "gate",
    "push per token",
    "share of the step",
  ];
  root.querySelector(".table").innerHTML = tableOf(
    head,
    good.flatMap((r) =>
      s.lengths.map((length, i) => [
        s.specs[r.name].label,
        i + 1,
        number(s.rewards[i]),
        length,
        signed(r.advantage[i]),
        number(r.W[i]),
        number(r.ratio[i]),
        number(r.gate[i]),
        signed(r.push[i]),
        percent(r.share[i]),
      ]),
    ),
  );
}

function point(root, s, results, i) {
  root
    .querySelectorAll("[data-row]")
    .forEach((g) => g.classList.toggle("on", Number(g.dataset.row) === i));
  root.querySelectorAll(".why").forEach((p) => {
    p.innerHTML = `<b>${named(s, i)}</b>&ensp;${product(results[p.dataset.panel], i)}`;
  });
}

// ---- the controls ----

const controls = ({ specs }) =>
  bar(chooser("recipes", "recipe", specs, MANY)) +
  bar(
    field("count", "completions", 'min="2" max="8" step="1"'),
    field("eps_low", "clip low", 'min="0" step="0.01" placeholder="own"'),
    field("eps_high", "clip high", 'min="0" step="0.01" placeholder="own"'),
    field("length_limit", "C = max_new_tokens", 'min="1" step="1"'),
    field("micro_batches", "micro-batches", 'min="1" max="8" step="1"'),
    tick("prompts", "second prompt"),
    tick("relative", "in percent of each recipe's step"),
  );

const row = (i) =>
  `<span class="who" data-key="who" data-index="${i}"></span><button type="button" ${attributes("rewards", "", i)}></button>` +
  slider(
    "lengths",
    "length",
    `min="1" max="${LONGEST}" step="1"`,
    `length of completion ${i + 1}`,
    i,
  ) +
  slider(
    "ratio",
    "ratio",
    'min="0.5" max="2" step="0.01"',
    `importance ratio of completion ${i + 1}`,
    i,
  );

function shown(key, s, i) {
  if (key === "rewards")
    return {
      value: mark(s.rewards[i]),
      label: `reward of completion ${Number(i) + 1}: ${mark(s.rewards[i])}`,
    };
  if (key === "who")
    return {
      value: `${new Set(s.group).size > 1 ? `prompt ${s.group[i] + 1} · ` : ""}completion ${Number(i) + 1}`,
    };
  if (key === "ratio") return { value: s.ratio[i], text: s.ratio[i]?.toFixed(2) };
  if (key === "recipes") return { value: s.recipes[i] ?? "none" };
  return { value: traitOf(s, key, i) };
}

// What a control changes in the state; throws where its text is not a value.
const changes = {
  recipes: chosen("recipes", MANY),
  count(input, s) {
    const n = parse(input, "completions", { min: 1, max: 8, whole: true });
    const [lengths, rewards, ratio] = [s.lengths, s.rewards, s.ratio].map((values) =>
      grown(values, n),
    );
    return {
      lengths,
      rewards,
      ratio,
      group: halves(n, new Set(s.group).size > 1),
      micro_batches: Math.min(s.micro_batches, n),
    };
  },
  prompts: (input, s) => ({ group: halves(s.lengths.length, input.checked) }),
  relative: (input) => ({ relative: input.checked }),
  lengths: (input, s, i) => ({ lengths: replaced(s.lengths, i, Number(input.value)) }),
  ratio: (input, s, i) => ({ ratio: replaced(s.ratio, i, Number(input.value)) }),
  rewards: (_, s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) }),
  eps_low: asNumber("eps_low", "clip low", { min: 0, blank: true }),
  eps_high: asNumber("eps_high", "clip high", { min: 0, blank: true }),
  length_limit: asNumber("length_limit", "C", { min: 1, whole: true }),
  micro_batches: (input, s) => ({
    micro_batches: parse(input, "micro-batches", { min: 1, max: s.lengths.length, whole: true }),
  }),
};

const keys = [
  "specs",
  "recipes",
  "lengths",
  "rewards",
  "group",
  "ratio",
  "eps_low",
  "eps_high",
  "length_limit",
  "micro_batches",
  "relative",
];
export default {
  render: explorer({
    keys,
    controls,
    rows: (s) => s.lengths.map((_, i) => row(i)),
    shown,
    changes,
    answer,
    draw,
    point,
  }),
};
