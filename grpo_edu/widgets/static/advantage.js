// The advantage explorer: one advantage per completion, under every estimator at once.

import { advantagesOf, batchOf, clamp, isDead, need, perPrompt, sum, turned } from "./objective.js";
import {
  FRAME,
  asNumber,
  attributes,
  bar,
  escaped,
  explorer,
  field,
  grown,
  halves,
  mark,
  more,
  named,
  parse,
  presetChoice,
  presetState,
  replaced,
  select,
  signed,
  slider,
  tableOf,
  tick,
  traitOf,
} from "./shared.js";

const FEWEST = 1;
const MOST = 16;
const LONGEST = 64;

function check({ rewards, lengths, group, eps }) {
  const n = rewards.length;
  need(n >= FEWEST && n <= MOST, "the number of completions", n, `${FEWEST} to ${MOST}`);
  for (const [name, values] of Object.entries({ lengths, group })) {
    if (values.length !== n)
      throw new Error(
        `${name} has ${values.length} entries but there are ${n} completions: expected one each.`,
      );
  }
  rewards.forEach((r, i) =>
    need(Number.isFinite(r), `reward of completion ${i + 1}`, r, "a number"),
  );
  need(eps >= 0, "eps", eps, "0 or more");
}

/* One answer per estimator: {name, advantage: [N], sum}, or {name, error}. Throws on a state that
   is wrong. */
export function answer(state) {
  check(state);
  const batch = batchOf({ ...state, greedy: state.rewards.map(() => Number(state.greedy)) });
  return state.estimators.map((name) => {
    try {
      const advantage = advantagesOf(turned(state.specs[name], state), batch);
      const total = sum(advantage);
      const rounding = 1e-14 * sum(advantage.map(Math.abs));
      return { name, advantage, sum: Math.abs(total) > rounding ? total : 0 };
    } catch (error) {
      return { name, error: error.message };
    }
  });
}

// ---- the picture: one line of bars per estimator ----

const LINE = 60; // height of a line of bars
const NAME = 18; // height of the name above it, on a narrow page
const HEAD = 24;
const TEXT = 13; // height of a number above or below its bar
const NARROW = 480;

/* Most of the lines fill their height: a bar that is longer than one and a half of the middle
   line's longest is cut. {up, down}: what the bars need on either side; {limit}: where they end. */
function scaleOf(good) {
  const largest = good.map((r) => Math.max(...r.advantage.map(Math.abs))).sort((a, b) => a - b);
  const limit = 1.5 * (largest.filter((a) => a > 0)[largest.filter((a) => a > 0).length >> 1] ?? 0);
  const ends = good.flatMap((r) => r.advantage.map((a) => clamp(a, -limit, limit)));
  return { limit, up: Math.max(0, ...ends), down: Math.max(0, ...ends.map((a) => -a)) };
}

function bars(result, s, { y, left, cell, scale, label }) {
  if (result.error)
    return `<text x="${left}" y="${y + 30}" class="soft">${escaped(result.error)}</text>`;
  const { limit, up, down } = scale;
  const unit = up + down > 0 ? (LINE - 2 * TEXT - 4) / (up + down) : 0;
  const zero = y + TEXT + 2 + up * unit;
  const one = (a, i) => {
    const height = Math.max(a === 0 ? 0 : 2, Math.min(Math.abs(a), limit) * unit);
    const x = left + i * cell;
    const wide = cell * 0.6;
    const top = a > 0 ? zero - height : zero;
    const gap = a > 0 ? top + 4 : top + height - 6;
    const cut = `<rect class="cut" x="${x}" y="${gap}" width="${cell}" height="2"/>`;
    return `<g data-row="${i}" data-advantage="${a}">
      <title>${escaped(label)}, completion ${i + 1}: ${signed(a)}</title>
      <rect class="back" x="${x}" y="${y}" width="${cell}" height="${LINE}"/>
      <rect x="${x + cell * 0.2}" y="${top}" width="${wide}" height="${height}"
      fill="var(--${a > 0 ? "up" : "down"}-most)"/>${Math.abs(a) > limit ? cut : ""}
      <text x="${x + cell / 2}" y="${a < 0 ? zero + height + TEXT - 2 : top - 3}"
      text-anchor="middle">${signed(a)}</text></g>`;
  };
  const end = left + cell * s.rewards.length;
  return `${result.advantage.map(one).join("")}
    <line class="axis" x1="${left}" x2="${end}" y1="${zero}" y2="${zero}"/>`;
}

function lineOf(result, s, k, { room, narrow, width, left, cell, scale }) {
  const { label, words } = s.specs[result.name];
  const step = LINE + (narrow ? NAME : 0);
  const y = HEAD + step * k;
  const low = y + step - LINE;
  const aside = room < 900 ? "" : `<text class="soft" x="0" y="${y + 38}">${escaped(words)}</text>`;
  const total = result.error ? "" : signed(result.sum);
  return `<g data-estimator="${escaped(result.name)}">
    <line class="grid" x1="0" x2="${width}" y1="${y}" y2="${y}"/>
    <text x="0" y="${y + (narrow ? 14 : 22)}">${escaped(label)}</text>${aside}
    ${bars(result, s, { y: low, left, cell, scale, label })}
    <text x="${width - 4}" y="${low + 31}" text-anchor="end">${total}</text></g>`;
}

function silentNotes(s) {
  const dead = perPrompt(batchOf(s), s.rewards, isDead);
  const many = new Set(s.group).size > 1;
  return [...new Set(s.group.filter((_, i) => dead[i]))].map(
    (q) =>
      `<p class="note">${many ? `prompt ${q + 1}: ` : ""}every reward is equal, ` +
      "so whoever compares within the prompt gets 0</p>",
  );
}

function draw(root, s, results) {
  const picture = root.querySelector(".picture");
  const n = s.rewards.length;
  const room = Math.floor(picture.parentElement.clientWidth) - 8;
  const narrow = room < NARROW;
  const left = [0, 128, 250][Number(!narrow) + Number(room >= 900)]; // see .compact .rows
  const sum = narrow ? 52 : 58;
  const cell = Math.max(48, (room - left - sum) / n); // many completions: it scrolls
  const width = left + cell * n + sum;
  const height = HEAD + (LINE + (narrow ? NAME : 0)) * results.length;
  const good = results.filter((r) => !r.error);
  const place = { room, narrow, width, left, cell, scale: scaleOf(good) };
  const heads = s.rewards.map(
    (_, i) =>
      `<text x="${left + (i + 0.5) * cell}" y="14" text-anchor="middle">${named(s, i)}</text>`,
  );
  const rules = s.group.map((q, i) => {
    const x = left + i * cell;
    return i > 0 && q !== s.group[i - 1]
      ? `<line class="rule" x1="${x}" x2="${x}" y1="0" y2="${height}"/>`
      : "";
  });
  const numbers = (r) => (r.error ? "no answer" : r.advantage.map(signed).join(" "));
  const said = results.map((r) => `${escaped(s.specs[r.name].label)} ${numbers(r)}`);
  const isCut = good.some((r) => r.advantage.some((a) => Math.abs(a) > place.scale.limit));
  const cut = isCut ? "; a bar with a gap is longer than drawn, its number holds" : "";
  picture.innerHTML = `${silentNotes(s).join("")}<div class="wide">
    <svg role="img" width="${width}" height="${height}">
    <title>advantage of each completion: ${said.join("; ")}</title>
    ${heads.join("")}<text class="soft" x="${width - 4}" y="14" text-anchor="end">sum</text>
    ${results.map((r, k) => lineOf(r, s, k, place)).join("")}${rules.join("")}</svg></div>
    <p class="soft${isCut ? "" : " aside"}">one scale for all estimators${cut}; exact</p>`;
  root.querySelector(".table").innerHTML = tableOf(
    ["estimator", ...s.rewards.map((_, i) => named(s, i)), "sum"],
    results.map((r) => [
      s.specs[r.name].label,
      ...(r.error ? s.rewards.map(() => "–") : r.advantage.map(signed)),
      r.error ? escaped(r.error) : signed(r.sum),
    ]),
  );
}

function point(root, _s, _results, i) {
  root
    .querySelectorAll("[data-row]")
    .forEach((g) => g.classList.toggle("on", Number(g.dataset.row) === i));
}

// ---- the controls ----

const controls = (s) =>
  bar(presetChoice(s)) +
  more(
    field("count", "completions", `min="${FEWEST}" max="${MOST}" step="1"`),
    select("ddof", "std divides by", [
      ["1", "G − 1 (ddof 1)"],
      ["0", "G (ddof 0)"],
    ]),
    field("eps", "eps added to a std", 'min="0" step="0.0001"'),
    field("k", "k of pass@k", 'min="1" step="1"'),
    tick("greedy", "greedy completion is right"),
    tick("prompts", "second prompt"),
  );

const one = (i) =>
  `<div class="one"><span class="who" data-key="who" data-index="${i}"></span>
  <button type="button" ${attributes("rewards", "", i)}></button>` +
  slider(
    "lengths",
    "length",
    `min="1" max="${LONGEST}" step="1"`,
    `length of completion ${i + 1}`,
    i,
  ) +
  "</div>";

function shown(key, s, i) {
  if (key === "who")
    return {
      value: `${new Set(s.group).size > 1 ? `prompt ${s.group[i] + 1} · ` : ""}${Number(i) + 1}`,
    };
  if (key === "rewards")
    return {
      value: mark(s.rewards[i]),
      label: `reward of completion ${Number(i) + 1}: ${mark(s.rewards[i])}`,
    };
  if (key === "ddof") return { value: String(s.ddof) };
  return { value: traitOf(s, key, i) };
}

const changes = {
  count(input, s) {
    const n = parse(input, "completions", { min: FEWEST, max: MOST, whole: true });
    return {
      rewards: grown(s.rewards, n),
      lengths: grown(s.lengths, n),
      group: halves(n, new Set(s.group).size > 1),
    };
  },
  preset: presetState,
  prompts: (input, s) => ({ group: halves(s.rewards.length, input.checked) }),
  greedy: (input) => ({ greedy: input.checked }),
  ddof: (input) => ({ ddof: Number(input.value) }),
  eps: asNumber("eps", "eps", { min: 0 }),
  k: asNumber("k", "k", { min: 1, max: MOST, whole: true }),
  rewards: (_, s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) }),
  lengths: (input, s, i) => ({ lengths: replaced(s.lengths, i, Number(input.value)) }),
};

const keys = [
  "specs",
  "rewards",
  "lengths",
  "group",
  "greedy",
  "ddof",
  "eps",
  "k",
  "estimators",
  ...FRAME,
];
export default {
  render: explorer({
    keys,
    controls,
    rows: (s) => s.rewards.map((_, i) => one(i)),
    shown,
    changes,
    answer,
    draw,
    point,
  }),
};
