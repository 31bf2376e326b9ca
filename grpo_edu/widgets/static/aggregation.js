// The aggregation explorer: the push on every token, for up to four recipes side by side.

import { gripAttributes, gripsOf, keepingFocus } from "./grips.js";
import { clamp, isDead, mean, need, perPrompt, pushOf, sum } from "./objective.js";
import {
  FRAME,
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
  more,
  named,
  number,
  parse,
  percent,
  presetChoice,
  presetState,
  replaced,
  signed,
  slider,
  tableOf,
  tick,
  traitOf,
} from "./shared.js";

export const LONGEST = 64;
const MANY = 4;
const LOWEST = 0.1;
const HIGHEST = 10;

// The clip of the controls in place of the recipe's own; null leaves its own. CISPO's bounds are
// absolute, the controls offsets from 1.
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

// ---- the ratio of every token: of a completion one number, or a list with one per token ----

const ratiosOf = ({ ratio, lengths }, i) =>
  Array.isArray(ratio[i]) ? ratio[i] : Array(lengths[i]).fill(ratio[i]);
const shortest = (values) => (values.every((x) => x === values[0]) ? values[0] : values);
const newOf = (s, ratio) => Number((s.old * ratio).toPrecision(12));
// The chosen token, on a completion that may have become shorter.
function tokenOf({ token: [i, t], lengths }) {
  const row = Math.min(i, lengths.length - 1);
  return [row, Math.min(t, lengths[row] - 1)];
}

// The new probability of a token, with three digits; the chosen token is this one.
function withNew(s, i, t, p) {
  const most = Math.min(1, HIGHEST * s.old);
  const kept = Number(clamp(p, LOWEST * s.old, most).toPrecision(3));
  const ratio = clamp(Number((kept / s.old).toPrecision(12)), LOWEST, HIGHEST);
  const own = replaced(ratiosOf(s, i), t, ratio);
  return { token: [i, t], ratio: replaced(s.ratio, i, shortest(own)) };
}

// A new length; new tokens of a completion with a ratio for every token have ratio 1.
function withLength(s, i, wanted) {
  const length = clamp(wanted, 1, Math.min(LONGEST, s.length_limit));
  const own = Array.isArray(s.ratio[i])
    ? shortest(Array.from({ length }, (_, t) => s.ratio[i][t] ?? 1))
    : s.ratio[i];
  return {
    lengths: replaced(s.lengths, i, length),
    ratio: replaced(s.ratio, i, own),
    token: [i, Math.min(s.token[1], length - 1)],
  };
}

// ---- the numbers ----

function checkRatios(s) {
  s.ratio.forEach((own, i) => {
    if (Array.isArray(own) && own.length !== s.lengths[i])
      throw new Error(
        `ratio of completion ${i + 1} has ${own.length} entries but it has ${s.lengths[i]} ` +
          "tokens: expected one number, or one per token.",
      );
    const all = ratiosOf(s, i);
    const name = `ratio of completion ${i + 1}`;
    all.forEach((x) => need(x > 0 && Number.isFinite(x), name, x, "a positive number"));
    const highest = newOf(s, Math.max(...all));
    need(
      highest <= 1,
      `a probability of completion ${i + 1}`,
      highest,
      "at most 1: lower its ratio, or π_old",
    );
  });
}

function check(s) {
  const { recipes, lengths, rewards, group, ratio, length_limit, micro_batches } = s;
  const n = lengths.length;
  need(n >= 1 && n <= 8, "the number of completions", n, "1 to 8");
  for (const [name, values] of Object.entries({ rewards, group, ratio })) {
    if (values.length !== n)
      throw new Error(
        `${name} has ${values.length} entries but there are ${n} completions: expected one each.`,
      );
  }
  lengths.forEach((x, i) => {
    const fits = Number.isInteger(x) && x >= 1 && x <= LONGEST;
    need(fits, `length of completion ${i + 1}`, x, `1 to ${LONGEST}`);
  });
  checkRatios(s);
  const longest = Math.max(...lengths);
  const least = `at least ${longest}, the longest completion`;
  need(length_limit >= longest, "C", length_limit, least);
  const parts = micro_batches >= 1 && micro_batches <= n;
  need(parts, "micro-batches", micro_batches, `1 to ${n}, the number of completions`);
  need(recipes.length > 0, "the choice of recipes", "empty", "at least one");
}

/* One answer per recipe: {name, error}, or {name, advantage, W, ratio, gate, push, clipped}, each
   [i][t], {share, dead} of each completion (share: its signed part of the step's total |push|) and
   that `total`. Throws on a state that is wrong. */
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

function pushes(spec, s) {
  const { advantage, W, ratio, gate, push, total, share, batch } = pushOf(
    { ...spec, surrogate: clipOf(spec.surrogate, s.eps_low, s.eps_high) },
    {
      rewards: s.rewards,
      lengths: s.lengths,
      group: s.group,
      greedy: s.rewards.map(() => Number(s.greedy)),
      logRatio: s.lengths.map((_, i) => ratiosOf(s, i).map(Math.log)),
      logOld: s.lengths.map((n) => Array(n).fill(Math.log(s.old))),
      limit: s.length_limit,
      micro: split(s.lengths.length, s.micro_batches),
    },
  );
  const dead = perPrompt(batch, s.rewards, isDead);
  return {
    advantage,
    W,
    ratio,
    gate,
    push,
    total,
    share: share.map(sum),
    clipped: gate.map((row, i) => row.map((g, t) => g === 0 && advantage[i][t] !== 0)),
    dead: dead.map((is, i) => is && advantage[i].every((a) => a === 0)),
  };
}

// ---- the pictures ----

const perToken = (x, relative) => (relative && x !== 0 ? `${signed(x)} %` : signed(x));
const product = (r, [i, t]) =>
  `A ${signed(r.advantage[i][t])} · W ${number(r.W[i][t])} · ratio ${number(r.ratio[i][t])} · ` +
  `gate ${number(r.gate[i][t])} = ${signed(r.push[i][t])}`;
const moved = (s, [i, t]) => {
  const ratio = ratiosOf(s, i)[t];
  return `π_old ${number(s.old)} → π ${number(newOf(s, ratio))}, ratio ${number(ratio)}`;
};
const TOP = 22;
const BAR = 96; // height of the bars, from a ratio of LOWEST to one of HIGHEST
const PER_LOG = BAR / Math.log(HIGHEST / LOWEST); // pixels
const textAt = (x, y, anchor, text, more = 'class="soft"') =>
  `<text ${more} x="${x.toFixed(1)}" y="${y}" text-anchor="${anchor}">${text}</text>`;

// Positions under a strip.
function places(left, cell, columns, y) {
  const marks = [1, ...[1, 2, 3, 4].map((k) => (k * columns) / 4)];
  const apart = marks.filter((t, k) => k === 0 || (t - marks[k - 1]) * cell > 16);
  return apart.map((t) => textAt(left + (t - 0.5) * cell, y, "middle", t)).join("");
}
const columnsOf = (length) => Math.max(8, 8 * Math.ceil(length / 8));

// One of 40 colours a side, so that many cells share one.
const shade = (x, largest) => colour(Math.round((40 * x) / (largest || 1)), 40);

// All cells of a panel, those of one colour as one path: a path each would be most of a frame.
function cellsOf(rows, { left, cell, height, id, largest }) {
  const gap = cell > 5 ? 1 : 0;
  const across = `h${(cell - gap).toFixed(2)}v${height - 6}h${(gap - cell).toFixed(2)}z`;
  const paths = new Map();
  rows.forEach(({ pushes, clipped }, i) => {
    const y = TOP + height * i + 3;
    pushes.forEach((x, t) => {
      const fill = clipped[t] ? `url(#${id})` : shade(x, largest);
      const d = `M${(left + t * cell).toFixed(2)} ${y}${across}`;
      paths.set(fill, (paths.get(fill) ?? "") + d);
    });
  });
  const drawn = [...paths].map(([fill, d]) => `<path fill="${fill}" d="${d}"/>`);
  return `<g class="fills">${drawn.join("")}</g>`;
}

const grip = (kind, s, i, reached) => {
  const [row, t] = tokenOf(s);
  const length = s.lengths[i];
  if (kind === "length")
    return gripAttributes(`length ${i}`, {
      label: `end of completion ${i + 1}`,
      text: `${length} tokens; left and right change the length`,
      now: length,
      low: 1,
      high: Math.min(LONGEST, s.length_limit),
      reached,
    });
  const at = [i, row === i ? t : 0];
  return gripAttributes(`${kind} ${i}`, {
    label: `${kind === "bars" ? "probability of the " : ""}tokens of completion ${i + 1}`,
    text:
      `token ${at[1] + 1} of ${length}: ${moved(s, at)}; left and right choose a token, up and ` +
      "down move its probability, Enter changes the reward",
    now: newOf(s, ratiosOf(s, i)[at[1]]),
    low: 0,
    high: 1,
    reached,
  });
};

function panelRow(r, s, i, { width, left, cell, height, reached, factor }) {
  const y = TOP + height * i;
  const middle = y + height / 2 + 4;
  const end = left + s.lengths[i] * cell;
  const average = mean(r.push[i]);
  const inside = `y="${y + 2.5}" height="${height - 5}"`;
  return `<g class="row${tokenOf(s)[0] === i ? " on" : ""}" data-row="${i}" data-push="${average}"
    data-share="${r.share[i]}">
    <rect class="back" x="0" y="${y}" width="${width}" height="${height}"/>
    <g data-grip="reward ${i}">${textAt(left - 8, middle, "end", named(s, i), "")}</g>
    <rect class="cells" data-cells="${s.lengths[i]}" x="${left}" width="${(end - left).toFixed(2)}"
    ${inside} ${grip("cells", s, i, reached)}/>
    <rect class="end" x="${(end + 1).toFixed(1)}" width="6" rx="2" ${inside}
    ${grip("length", s, i, reached)}/>
    ${textAt(width - 64, middle, "end", perToken(factor * average, s.relative), "")}
    ${textAt(width - 4, middle, "end", percent(r.share[i]), "")}</g>`;
}

function panel(r, s, { width, largest, id, reached }) {
  const { lengths, group } = s;
  const height = s.compact ? 18 : 24;
  const left = 14 + 6.5 * Math.max(...lengths.map((_, i) => named(s, i).length));
  const columns = columnsOf(Math.max(...lengths));
  const cell = (width - left - 144) / columns;
  const bottom = TOP + height * lengths.length;
  const factor = s.relative && r.total ? 100 / r.total : 1;
  const size = { width, left, cell, largest, id, height, reached, factor };
  const rows = r.push.map((push, i) => ({
    pushes: push.map((x) => factor * x),
    clipped: r.clipped[i],
  }));
  const [row, t] = tokenOf(s);
  const chosen = `<rect class="chosen" x="${left + t * cell - 0.5}" width="${cell}"
    y="${TOP + height * row + 2.5}" height="${height - 5}"/>`;
  const rule = (i) =>
    i > 0 && group[i] !== group[i - 1]
      ? `<path class="rule" d="M0 ${TOP + height * i}h${width}"/>`
      : "";
  const even = r.push.every((row) => row.every((x) => x === row[0]));
  const summary = lengths.map(
    (_, i) =>
      `completion ${i + 1} ${perToken(mean(r.push[i]), false)} per token, ` +
      `${percent(r.share[i])} of the step`,
  );
  const title = `${escaped(s.specs[r.name].label)}: ${summary.join("; ")}`;
  const below =
    places(left, cell, columns, bottom + 13) +
    textAt(left + (columns * cell) / 2, bottom + 27, "middle", "token position");
  return `<svg role="${reached ? "group" : "img"}" data-left="${left}" data-cell="${cell}"
    width="${width}" height="${bottom + (s.compact ? 0 : 30)}"><title>${title}</title>
    <defs><pattern id="${id}" width="5" height="5" patternUnits="userSpaceOnUse"
    patternTransform="rotate(45)"><rect class="hatch-back" width="5" height="5"/>
    <line class="hatch" x1="0" x2="0" y1="0" y2="5"/></pattern></defs>
    ${textAt(width - 64, 14, "end", `${even ? "" : "mean "}push / token`)}
    ${textAt(width - 4, 14, "end", "share")}
    ${lengths.map((_, i) => panelRow(r, s, i, size) + rule(i)).join("")}
    ${cellsOf(rows, size)}${chosen}
    ${s.compact ? "" : below}</svg>`;
}

// The probability of every token of the chosen completion: up from π_old, or down.
function bars(s, width) {
  const [i, t] = tokenOf(s);
  const left = 48;
  const cell = Math.min(30, (width - left - 4) / columnsOf(s.lengths[i]));
  const gap = cell > 5 ? 2 : 0;
  const y = (ratio) => 4 + Math.log(HIGHEST / ratio) * PER_LOG;
  const ratios = ratiosOf(s, i);
  const right = left + cell * s.lengths[i];
  const bar = (ratio, k) => {
    const top = Math.min(y(ratio), y(1)) - 1;
    return `<rect class="probability${k === t ? " chosen" : ""}" x="${(left + k * cell).toFixed(2)}"
      width="${(cell - gap).toFixed(2)}" y="${top.toFixed(2)}"
      height="${(Math.abs(y(ratio) - y(1)) + 2).toFixed(2)}"/>`;
  };
  const lines = [HIGHEST, 1, LOWEST].map(
    (ratio) =>
      `<line class="${ratio === 1 ? "now" : "grid"}" x1="${left}" x2="${right}" y1="${y(ratio)}"
      y2="${y(ratio)}"/>${textAt(left - 6, y(ratio) + 4, "end", number(newOf(s, ratio)))}`,
  );
  return `<div class="wide"><svg role="group" class="probabilities" data-left="${left}"
    data-cell="${cell}" width="${width}" height="${BAR + 26}">
    <title>probability of every token of completion ${i + 1}, on a log scale</title>
    <g ${grip("bars", s, i, true)}><rect class="back" x="${left}" y="0" width="${right - left}"
    height="${BAR + 8}"/>${ratios.map(bar).join("")}</g>${lines.join("")}
    ${places(left, cell, columnsOf(s.lengths[i]), BAR + 22)}</svg></div>`;
}

function notes(r, s) {
  const dead = [...new Set(s.group.filter((_, i) => r.dead[i]))];
  const prompts = new Set(s.group).size;
  const out = dead.map(
    (q) => `${prompts > 1 ? `prompt ${q + 1}: ` : ""}every reward is equal: no signal`,
  );
  const cut = r.clipped.flatMap((row, i) => {
    const many = row.filter(Boolean).length;
    if (many === 0) return [];
    return [many === row.length ? i + 1 : `${i + 1} (${many} of ${row.length} tokens)`];
  });
  if (cut.length > 0) out.push(`clipped, so no gradient: completion ${cut.join(", ")}`);
  return out.map((text) => `<p class="note">${text}</p>`).join("");
}

const RELATIVE = "push per token in percent of the recipe's step";
const legend = (largest, relative) => `<span>pushed down</span>
  <span>${perToken(-largest, relative)}</span><i class="ramp"></i>
  <span>${perToken(largest, relative)}</span><span>pushed up</span>
  <i class="hatched"></i><span>clipped: no gradient</span>
  <span class="soft">${relative ? RELATIVE : "push per token"},
  one colour scale for all panels; exact</span>`;

// The places that are filled at every draw; they stay while the recipes stay.
function frame(s) {
  const sections = s.recipes.map((name) => {
    const { label, formula } = s.specs[name];
    return `<section data-recipe="${escaped(name)}"><h4>${escaped(label)}
      <span class="soft">W = ${escaped(formula)}</span></h4><div class="plot"></div></section>`;
  });
  const count = sections.length > 3 ? 2 : sections.length;
  return `<div class="above"><p class="moved"></p><div class="tokens"></div>
    <div class="legend"></div></div>
    <div class="panels" style="--count: ${count}">${sections.join("")}</div>`;
}

const HOW = `<span class="soft aside">Drag a bar or a cell up or down: it changes the token's
  probability. Drag the end of a strip: it changes the length.</span>`;

function fill(root, s, results, largest, id) {
  const good = results.filter((r) => !r.error);
  const plots = [...root.querySelectorAll(".plot")];
  const tokens = root.querySelector(".tokens");
  const widths = plots.map((plot) => Math.max(300, Math.floor(plot.clientWidth)));
  const room = Math.max(300, Math.min(980, tokens.clientWidth)); // every width before any change
  const at = tokenOf(s);
  root.querySelector(".moved").innerHTML =
    `<b>Completion ${named(s, at[0])}, token ${at[1] + 1}:</b> ${moved(s, at)}. ${HOW}`;
  root.querySelector(".legend").innerHTML = good.length ? legend(largest, s.relative) : "";
  tokens.innerHTML = bars(s, room);
  plots.forEach((plot, k) => {
    const r = results[k];
    const size = { width: widths[k], largest, id: `${id}-${k}`, reached: r === good[0] };
    plot.innerHTML = r.error
      ? `<p class="message" role="alert">${escaped(r.error)}</p>`
      : `${panel(r, s, size)}${why(r, s)}${notes(r, s)}`;
  });
}

function why(r, s) {
  const at = tokenOf(s);
  const push = r.push[at[0]][at[1]];
  return `<p class="why" data-push="${push}"><b>${named(s, at[0])}, token ${at[1] + 1}</b>&ensp;
    ${product(r, at)}</p>`;
}

function draw(root, s, results, id) {
  const good = results.filter((r) => !r.error);
  const scale = (r) => (s.relative && r.total ? 100 / r.total : 1);
  const sizes = good.map((r) => Math.max(...r.push.flat().map(Math.abs)) * scale(r));
  const largest = Math.max(0, ...sizes);
  const picture = root.querySelector(".picture");
  const shape = JSON.stringify(s.recipes);
  keepingFocus(root, () => {
    if (picture.dataset.shape !== shape || !picture.firstChild) picture.innerHTML = frame(s);
    picture.dataset.shape = shape;
    fill(root, s, results, largest, id);
  });
  root.querySelector(".table").innerHTML = table(good, s);
}

function table(good, s) {
  const span = (values, text = number) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? text(low) : `${text(low)} to ${text(high)}`;
  };
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
  const line = (r, i) => [
    s.specs[r.name].label,
    i + 1,
    number(s.rewards[i]),
    s.lengths[i],
    span(r.advantage[i], signed),
    span(r.W[i]),
    span(r.ratio[i]),
    span(r.gate[i]),
    span(r.push[i], signed),
    percent(r.share[i]),
  ];
  return tableOf(
    head,
    good.flatMap((r) => s.lengths.map((_, i) => line(r, i))),
  );
}

// ---- the controls ----

const controls = (s) =>
  bar(presetChoice(s), chooser("recipes", "recipe", s.specs, MANY)) +
  more(
    field("count", "completions", 'min="2" max="8" step="1"'),
    field("eps_low", "clip low", 'min="0" step="0.01" placeholder="own"'),
    field("eps_high", "clip high", 'min="0" step="0.01" placeholder="own"'),
    field("length_limit", "C = max_new_tokens", 'min="1" step="1"'),
    field("micro_batches", "micro-batches", 'min="1" max="8" step="1"'),
    field("old", "π_old of every token", 'min="0.01" max="1" step="0.01"'),
    field("now", "π of the chosen token", 'min="0" max="1" step="any"'),
    tick("prompts", "second prompt"),
    tick("greedy", "greedy answer right (ReMax)"),
    tick("relative", "in percent of each recipe's step"),
  );

const row = (i) =>
  `<span class="who" data-key="who" data-index="${i}"></span>` +
  `<button type="button" ${attributes("rewards", "", i)}></button>` +
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
      value:
        `${new Set(s.group).size > 1 ? `prompt ${s.group[i] + 1} · ` : ""}` +
        `completion ${Number(i) + 1}`,
    };
  if (key === "lengths") return { value: s.lengths[i], max: Math.min(LONGEST, s.length_limit) };
  if (key === "ratio") {
    const own = s.ratio[i];
    if (Array.isArray(own)) return { value: mean(own), text: "own" };
    return { value: own, text: own?.toFixed(2) };
  }
  if (key === "now") {
    const [row, t] = tokenOf(s);
    return { value: newOf(s, ratiosOf(s, row)[t]) };
  }
  if (key === "recipes") return { value: s.recipes[i] ?? "none" };
  return { value: traitOf(s, key, i) };
}

const toggled = (s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) });

// What a control changes in the state; throws where its text is not a value.
const changes = {
  preset: presetState,
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
  greedy: (input) => ({ greedy: input.checked }),
  lengths: (input, s, i) => withLength(s, Number(i), Number(input.value)),
  ratio: (input, s, i) => ({
    ratio: replaced(s.ratio, i, Number(input.value)),
    token: [Number(i), s.token[1]],
  }),
  rewards: (_, s, i) => toggled(s, i),
  old: asNumber("old", "π_old", { min: 0.01, max: 1 }),
  now(input, s) {
    const most = Math.min(1, newOf(s, HIGHEST));
    const p = parse(input, "π", { min: newOf(s, LOWEST), max: most });
    return withNew(s, ...tokenOf(s), p);
  },
  eps_low: asNumber("eps_low", "clip low", { min: 0, blank: true }),
  eps_high: asNumber("eps_high", "clip high", { min: 0, blank: true }),
  length_limit: asNumber("length_limit", "C", { min: 1, whole: true }),
  micro_batches: (input, s) => ({
    micro_batches: parse(input, "micro-batches", { min: 1, max: s.lengths.length, whole: true }),
  }),
};

// ---- what is dragged ----

function taken(held, event, s) {
  const [kind, index] = held.dataset.grip.split(" ");
  const i = Number(index);
  const still = () => ({});
  if (kind === "reward") return { changed: toggled(s, i), move: still };
  const svg = held.closest("svg");
  const cell = Number(svg.dataset.cell);
  if (kind === "length")
    return {
      changed: { token: [i, tokenOf({ ...s, token: [i, s.token[1]] })[1]] },
      move: (dx) => withLength(s, i, s.lengths[i] + Math.round(dx / cell)),
    };
  const x = event.clientX - svg.getBoundingClientRect().left - Number(svg.dataset.left);
  const t = clamp(Math.floor(x / cell), 0, s.lengths[i] - 1);
  const from = newOf(s, ratiosOf(s, i)[t]);
  return {
    changed: { token: [i, t] },
    move: (_, dy) => withNew(s, i, t, from * Math.exp(-dy / PER_LOG)),
  };
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 };
function pressed(held, key, s) {
  const [kind, index] = held.dataset.grip.split(" ");
  const i = Number(index);
  const length = s.lengths[i];
  if (kind === "length") {
    const ends = { Home: 1, End: LONGEST };
    const wanted = key in STEPS ? length + STEPS[key] : ends[key];
    return wanted === undefined ? null : withLength(s, i, wanted);
  }
  const t = tokenOf({ ...s, token: [i, s.token[0] === i ? s.token[1] : 0] })[1];
  if (key === "Enter" || key === " ") return toggled(s, i);
  if (key === "ArrowUp" || key === "ArrowDown")
    return withNew(s, i, t, newOf(s, ratiosOf(s, i)[t]) * 1.1 ** STEPS[key]);
  const places = { ArrowLeft: t - 1, ArrowRight: t + 1, Home: 0, End: length - 1 };
  return key in places ? { token: [i, clamp(places[key], 0, length - 1)] } : null;
}

const keys = [
  "specs",
  "recipes",
  "lengths",
  "rewards",
  "group",
  "ratio",
  "old",
  "token",
  "greedy",
  "eps_low",
  "eps_high",
  "length_limit",
  "micro_batches",
  "relative",
  ...FRAME,
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
    grips: gripsOf({ taken, pressed }),
  }),
};
