// The advantage explorer: one advantage per completion, under every estimator at once.

import { advantagesOf, batchOf, isDead, need, perPrompt, sum, turned } from "./objective.js";
import {
  asNumber,
  attributes,
  bar,
  escaped,
  explorer,
  field,
  grown,
  halves,
  mark,
  named,
  parse,
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

/* One answer per estimator: {name, advantage: [N], sum}, or {name, error}. Throws on a state that is wrong. */
export function answer(state) {
  check(state);
  const batch = batchOf({ ...state, greedy: state.rewards.map(() => Number(state.greedy)) });
  return Object.keys(state.specs).map((name) => {
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

const LINE = 46;
const HEAD = 24;

function bars(result, s, { y, left, cell, largest, label }) {
  if (result.error)
    return `<text x="${left}" y="${y + 26}" class="soft">${escaped(result.error)}</text>`;
  const zero = y + LINE / 2;
  const scale = largest > 0 ? (LINE / 2 - 5) / largest : 0;
  return (
    result.advantage
      .map((a, i) => {
        const height = Math.abs(a) * scale;
        const x = left + i * cell;
        return `<g data-row="${i}" data-advantage="${a}"><title>${escaped(label)}, completion ${i + 1}: ${signed(a)}</title>
      <rect class="back" x="${x}" y="${y}" width="${cell}" height="${LINE}"/>
      <rect x="${x + cell * 0.2}" y="${a > 0 ? zero - height : zero}" width="${cell * 0.6}" height="${height}" fill="var(--${a > 0 ? "up" : "down"}-most)"/>
      <text x="${x + cell / 2}" y="${a > 0 ? zero + 14 : zero - 5}" text-anchor="middle">${signed(a)}</text></g>`;
      })
      .join("") +
    `<line class="axis" x1="${left}" x2="${left + cell * s.rewards.length}" y1="${zero}" y2="${zero}"/>`
  );
}

function draw(root, s, results) {
  const picture = root.querySelector(".picture");
  const n = s.rewards.length;
  const room = Math.floor(picture.parentElement.clientWidth) - 8;
  const narrow = room < 900;
  const left = narrow ? 128 : 250;
  const cell = Math.max(48, (room - left - 58) / n); // many completions: it scrolls
  const width = left + cell * n + 58;
  const height = HEAD + LINE * results.length;
  const largest = Math.max(
    0,
    ...results.filter((r) => !r.error).flatMap((r) => r.advantage.map(Math.abs)),
  );
  const heads = s.rewards.map(
    (_, i) =>
      `<text x="${left + (i + 0.5) * cell}" y="14" text-anchor="middle">${named(s, i)}</text>`,
  );
  const lines = results.map((r, k) => {
    const y = HEAD + LINE * k;
    const { label, words } = s.specs[r.name];
    return `<g data-estimator="${escaped(r.name)}"><line class="grid" x1="0" x2="${width}" y1="${y}" y2="${y}"/>
      <text x="0" y="${y + (narrow ? 27 : 19)}">${escaped(label)}</text>${narrow ? "" : `<text class="soft" x="0" y="${y + 35}">${escaped(words)}</text>`}
      ${bars(r, s, { y, left, cell, largest, label })}<text x="${width - 4}" y="${y + 27}" text-anchor="end">${r.error ? "" : signed(r.sum)}</text></g>`;
  });
  const rule = s.group.map((q, i) =>
    i > 0 && q !== s.group[i - 1]
      ? `<line class="rule" x1="${left + i * cell}" x2="${left + i * cell}" y1="0" y2="${height}"/>`
      : "",
  );
  const dead = perPrompt(batchOf(s), s.rewards, isDead);
  const silent = [...new Set(s.group.filter((_, i) => dead[i]))];
  const note = silent.map(
    (q) =>
      (new Set(s.group).size > 1 ? `prompt ${q + 1}: ` : "") +
      "every reward is equal, so whoever compares within the prompt gets 0",
  );
  picture.innerHTML = `${note.map((text) => `<p class="note">${text}</p>`).join("")}<div class="wide"><svg role="img" width="${width}" height="${height}">
    <title>advantage of each completion: ${results.map((r) => `${escaped(s.specs[r.name].label)} ${r.error ? "no answer" : r.advantage.map(signed).join(" ")}`).join("; ")}</title>
    ${heads.join("")}<text class="soft" x="${width - 4}" y="14" text-anchor="end">sum</text>${lines.join("")}${rule.join("")}</svg></div>
    <p class="soft">one scale for all estimators; exact</p>`;
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

const controls = () =>
  bar(
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
  `<div class="one"><span class="who" data-key="who" data-index="${i}"></span><button type="button" ${attributes("rewards", "", i)}></button>` +
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
  prompts: (input, s) => ({ group: halves(s.rewards.length, input.checked) }),
  greedy: (input) => ({ greedy: input.checked }),
  ddof: (input) => ({ ddof: Number(input.value) }),
  eps: asNumber("eps", "eps", { min: 0 }),
  k: asNumber("k", "k", { min: 1, max: MOST, whole: true }),
  rewards: (_, s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) }),
  lengths: (input, s, i) => ({ lengths: replaced(s.lengths, i, Number(input.value)) }),
};

const keys = ["specs", "rewards", "lengths", "group", "greedy", "ddof", "eps", "k"];
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
