// The DAPO explorer: DAPO's four changes, one at a time.

import { lookup, need } from "./objective.js";
import {
  FRAME,
  bar,
  barsOf,
  chart,
  explorer,
  keyOf,
  number,
  percent,
  select,
  slider,
  tableOf,
} from "./shared.js";

const LIMIT_TOKENS = 20480;
const GRID = Array.from({ length: 99 }, (_, i) => (i + 1) / 100);
const others = 8; // tokens of each of the seven other completions

const plain = (x) => percent(x).replace("+", "");
const line = (name, f, xs, now) => ({ name, values: xs.map(f), at: f(now) });

/* One entry per change: {sentence, plots: [{title, more, x, y, lines, now}]}, or with `bars`. */
const PARTS = {
  "clip-higher"({ eps_high, old }) {
    const to = (p, eps) => Math.min(1, p * (1 + eps));
    const room = (eps) => (p) => to(p, eps) - p;
    const rise = (p) => `one at ${number(p)} to ${number(to(p, eps_high))}`;
    const lines = [0.2, eps_high].map((eps, k) => ({
      ...line(`eps high ${eps.toFixed(2)}${k ? "" : " (PPO)"}`, room(eps), GRID, old),
      note: `to ${number(to(old, eps))}`,
    }));
    const plot = {
      title: "room to rise",
      more: "in one rollout, before the clip ends the gradient",
      x: { values: GRID, low: 0, high: 1, label: "old probability of the token" },
      y: { low: 0, high: 0.36 },
      lines,
      now: old,
    };
    const sentence =
      "The room grows with the old probability, until it meets 1. With eps high " +
      `${eps_high.toFixed(2)} a token at 0.01 may rise to ${number(to(0.01, eps_high))}, ` +
      `${rise(0.5)}.`;
    return { sentence, plots: [plot] };
  },
  "dynamic sampling"({ p, size }) {
    const live = (q) => 1 - q ** size - (1 - q) ** size;
    const x = { values: GRID, low: 0, high: 1, label: "pass rate p" };
    const plots = [
      ["live groups", "with a right and a wrong answer", live, { low: 0, high: 1.02 }],
      ["groups sampled", "for one that is live", (q) => 1 / live(q), { low: 0, high: 12 }],
    ].map(([title, more, f, y]) => ({
      title,
      more,
      x,
      y,
      lines: [line(title, f, GRID, p)],
      now: p,
    }));
    const sentence =
      `At p = ${number(p)}, G = ${size}: ${plain(live(p))} of the groups are live, so ` +
      `${number(1 / live(p))} are sampled for each that trains.`;
    return { sentence, plots };
  },
  "token mean"({ longest }) {
    const bars = [
      ["1/|o|: grpo", 1 / 8],
      ["token mean of the prompt: dapo", longest / (longest + 3 * others) / 2],
      ["token mean of the step: dapo(step)", longest / (longest + 7 * others)],
    ].map(([name, value]) => ({ name, value, text: plain(value) }));
    const sentence =
      `One completion of ${longest} tokens beside seven of ${others}, in two prompts: how much ` +
      "of the step's push is it? The line is one completion of eight.";
    return { sentence, bars, title: "share of the step", marks: [{ name: "1/8", value: 1 / 8 }] };
  },
  "overlong penalty"({ cache }) {
    const start = LIMIT_TOKENS - cache;
    const penalty = (n) => -Math.min(1, Math.max(0, (n - start) / cache));
    const xs = Array.from({ length: 111 }, (_, i) => (i * LIMIT_TOKENS) / 100);
    const plot = {
      title: "added to the reward",
      more: `limit ${LIMIT_TOKENS} tokens`,
      x: { values: xs, low: 0, high: 1.1 * LIMIT_TOKENS, label: "tokens of the completion" },
      y: { low: -1.1, high: 0.1 },
      lines: [line("penalty", penalty, xs, start)],
      now: start,
    };
    const sentence =
      `The penalty starts at ${start} tokens and is complete at ${LIMIT_TOKENS}. With no tokens ` +
      "penalised before the limit it would be a cliff.";
    return { sentence, plots: [plot] };
  },
};

export function answer(state) {
  need(state.old > 0 && state.old < 1, "old", state.old, "a probability, 0 and 1 excluded");
  need(state.p > 0 && state.p < 1, "p", state.p, "a pass rate, 0 and 1 excluded");
  return lookup(PARTS, "change", { name: state.part })(state);
}

// ---- the picture ----

function drawPlots(picture, s, plots, id) {
  const sections = plots.map(
    ({ title, more }) =>
      `<section><h4>${title}<span class="soft">${more}</span></h4>` +
      `<div class="plot"></div></section>`,
  );
  picture.querySelector(".panels").innerHTML = sections.join("");
  [...picture.querySelectorAll(".plot")].forEach((plot, k) => {
    const { title, x, y, lines, now } = plots[k];
    const width = Math.min(620, Math.max(240, Math.floor(plot.clientWidth)));
    const key = lines.length > 1 ? keyOf(lines.map((l) => ({ ...l, label: l.name }))) : "";
    const height = s.compact ? 220 : 250;
    plot.innerHTML = key + chart({ width, height, x, y, lines, now, title, id: `${id}-${k}` });
  });
}

function draw(root, s, { sentence, plots = [], bars, title, marks }, id) {
  const picture = root.querySelector(".picture");
  picture.innerHTML = `<p class="note">${sentence}</p><div class="panels"></div>
    <p class="soft">exact</p>`;
  const panels = picture.querySelector(".panels");
  if (bars) {
    const width = Math.min(760, Math.floor(picture.clientWidth));
    panels.outerHTML = barsOf({ width, lines: bars, marks, title, names: 220 });
  } else drawPlots(picture, s, plots, id);
  const lines = bars ?? plots.flatMap((plot) => plot.lines);
  root.querySelector(".table").innerHTML = tableOf(
    ["line", "value"],
    lines.map((l) => [l.name, l.text ?? number(l.at)]),
  );
}

// ---- the controls: those of the chosen change ----

const OWN = {
  eps_high: "clip-higher",
  old: "clip-higher",
  p: "dynamic sampling",
  size: "dynamic sampling",
  longest: "token mean",
  cache: "overlong penalty",
};
const CHANCE = 'min="0.01" max="0.99" step="0.01"';
const controls = () =>
  bar(
    select(
      "part",
      "change",
      Object.keys(PARTS).map((name) => [name, name]),
    ),
  ) +
  bar(
    slider("eps_high", "eps high", 'min="0.1" max="0.5" step="0.02"'),
    slider("old", "old probability of the token", CHANCE),
    slider("p", "pass rate p", CHANCE),
    slider("size", "group size G", 'min="2" max="64" step="1"'),
    slider("longest", "tokens of the long completion", 'min="8" max="512" step="8"'),
    slider("cache", "penalised tokens before the limit", 'min="512" max="8192" step="512"'),
  );

const shown = (key, s) => ({
  value: s[key],
  text: ["eps_high", "old", "p"].includes(key) ? s[key].toFixed(2) : undefined,
  hidden: key !== "part" && OWN[key] !== s.part,
});

const changes = {
  part: (input) => ({ part: input.value }),
  ...Object.fromEntries(
    Object.keys(OWN).map((key) => [key, (input) => ({ [key]: Number(input.value) })]),
  ),
};

const keys = ["part", ...Object.keys(OWN), ...FRAME];
export default { render: explorer({ keys, controls, shown, changes, answer, draw }) };
