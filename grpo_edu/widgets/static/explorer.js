// The weight explorer: one gradient weight per completion token, for up to three recipes side by side.
// The formula, `weights(state)`, is pure and needs no browser; below it stands everything that draws.

// ---- the formula: each word of a recipe's spec is one function, as in grpo_edu/objective ----

export const LONGEST = 64;
const sum = (xs) => xs.reduce((a, b) => a + b, 0);
const mean = (xs) => sum(xs) / xs.length;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// Rewards that differ by rounding at most carry no signal.
function isDead(rewards) {
  const high = Math.max(...rewards), low = Math.min(...rewards);
  return !(high - low > 8 * Number.EPSILON * Math.max(Math.abs(high), Math.abs(low)));
}

function centred(reward, peers) {
  if (peers.length < 2) {
    throw new Error("group size 1: no relative signal. This recipe compares completions of one prompt, " +
      "but a prompt has a single one. Give it at least 2, or choose reinforce.");
  }
  return isDead(peers) ? 0 : reward - mean(peers);
}

// (own reward, rewards of its prompt) -> centred advantage
const BASELINES = {
  no_baseline: (reward) => reward,
  group_mean: centred,
  leave_one_out: (reward, peers) => (centred(reward, peers) * peers.length) / (peers.length - 1),
};

// (advantage, rewards of its prompt, settings) -> scaled advantage
const SCALES = {
  unscaled: (advantage) => advantage,
  group_std(advantage, peers, { ddof, eps }) {
    if (isDead(peers)) return 0;
    const middle = mean(peers);
    return advantage / (Math.sqrt(sum(peers.map((r) => (r - middle) ** 2)) / Math.max(1, peers.length - ddof)) + eps);
  },
};

function clipped(ratio, advantage, { eps_low, eps_high }) {
  const cut = (advantage > 0 && ratio > 1 + eps_high) || (advantage < 0 && ratio < 1 - eps_low);
  return { ratio, gate: cut ? 0 : 1 };
}

// (ratio, advantage, settings) -> ratio and gate. All tokens of a completion share one ratio here, so it is its own geometric mean.
const SURROGATES = {
  reinforce: () => ({ ratio: 1, gate: 1 }),
  ppo_clip: clipped,
  gspo: clipped,
  cispo: (ratio, _, { low, high }) => ({ ratio, gate: clamp(ratio, low, high) / ratio }),
};

// (completion, batch) -> W of each of its tokens. `tokens` is 0 for a completion that a filter took out.
const AGGREGATIONS = {
  sequence_mean: (i, { tokens, present }) => 1 / tokens[i] / sum(present),
  step_token_mean: (_, { tokens }) => 1 / sum(tokens),
  prompt_token_mean: (i, { tokens, present, group }) =>
    1 / sum(tokens.filter((_, j) => group[j] === group[i])) / new Set(group.filter((_, j) => present[j])).size,
  micro_batch_token_mean: (i, { tokens, micro, parts }) => 1 / sum(tokens.filter((_, j) => micro[j] === micro[i])) / parts,
  constant: (_, { present, limit }, { length }) => 1 / sum(present) / (length ?? limit),
  sequence_sum: (_, { present }) => 1 / sum(present),
};

// (rewards of its prompt) -> does the completion stay in the batch?
const FILTERS = { drop_dead_groups: (peers) => !isDead(peers) };

function word(table, axis, choice) {
  if (!Object.hasOwn(table, choice.name)) throw new Error(`the explorer does not draw the ${axis} '${choice.name}'.`);
  return table[choice.name];
}

// The clip of the controls in place of the recipe's own; null leaves its own. CISPO's bounds are absolute, the controls offsets from 1.
export function clipOf(surrogate, low, high) {
  if ("eps_low" in surrogate) return { ...surrogate, eps_low: low ?? surrogate.eps_low, eps_high: high ?? surrogate.eps_high };
  if (!("high" in surrogate)) return surrogate;
  return { ...surrogate, low: low === null ? surrogate.low : Math.max(0, 1 - low), high: high === null ? surrogate.high : 1 + high };
}

// `parts` micro-batches of nearly equal size, cut in order: (5, 2) -> 0 0 0 1 1
const split = (rows, parts) => {
  const small = Math.floor(rows / parts), large = rows % parts;
  return Array.from({ length: parts }, (_, b) => Array(small + (b < large)).fill(b)).flat();
};

export function check({ recipes, lengths, rewards, group, ratio, length_limit, micro_batches }) {
  const n = lengths.length;
  const need = (ok, name, found, expected) => {
    if (!ok) throw new Error(`${name} is ${found}: expected ${expected}.`);
  };
  need(n >= 1 && n <= 8, "the number of completions", n, "1 to 8");
  for (const [name, values] of Object.entries({ rewards, group, ratio })) {
    if (values.length !== n) throw new Error(`${name} has ${values.length} entries but there are ${n} completions: expected one each.`);
  }
  lengths.forEach((x, i) => need(Number.isInteger(x) && x >= 1 && x <= LONGEST, `length of completion ${i + 1}`, x, `1 to ${LONGEST}`));
  ratio.forEach((x, i) => need(x > 0 && Number.isFinite(x), `ratio of completion ${i + 1}`, x, "a positive number"));
  need(length_limit >= Math.max(...lengths), "C", length_limit, `at least ${Math.max(...lengths)}, the longest completion`);
  need(micro_batches >= 1 && micro_batches <= n, "micro-batches", micro_batches, `1 to ${n}, the number of completions`);
  need(recipes.length > 0, "the choice of recipes", "empty", "at least one");
}

/* One answer per recipe, {name, advantage, aggregation, ratio, gate, weight, share, clipped, dead, total} with one number per
   completion (weight: of each of its tokens; share: of the step's push, signed), or {name, error}. Throws on a state that is wrong. */
export function weights(state) {
  check(state);
  return state.recipes.map((name) => {
    try {
      return { name, ...answer(state.specs[name], state) };
    } catch (error) {
      return { name, error: error.message };
    }
  });
}

function answer(spec, { lengths, rewards, group, ratio, eps_low, eps_high, length_limit, micro_batches }) {
  if (spec.rewards.length) throw new Error("the explorer does not draw reward shaping.");
  const rows = lengths.map((_, i) => i);
  const peers = rows.map((i) => rewards.filter((_, j) => group[j] === group[i]));
  const present = rows.map((i) => spec.filters.every((f) => word(FILTERS, "filter", f)(peers[i])));
  const tokens = lengths.map((length, i) => (present[i] ? length : 0));
  const batch = { tokens, present, group, limit: length_limit, micro: split(rows.length, micro_batches), parts: micro_batches };
  const baseline = word(BASELINES, "baseline", spec.baseline), scale = word(SCALES, "scale", spec.scale);
  const surrogate = word(SURROGATES, "surrogate", spec.surrogate), weigh = word(AGGREGATIONS, "aggregation", spec.aggregation);
  const clip = clipOf(spec.surrogate, eps_low, eps_high);
  const advantage = rows.map((i) => (present[i] ? scale(baseline(rewards[i], peers[i]), peers[i], spec.scale) : 0));
  const aggregation = rows.map((i) => (present[i] ? weigh(i, batch, spec.aggregation) : 0));
  const factors = rows.map((i) => surrogate(ratio[i], advantage[i], clip));
  const weight = rows.map((i) => advantage[i] * aggregation[i] * factors[i].ratio * factors[i].gate);
  const total = sum(rows.map((i) => Math.abs(weight[i]) * lengths[i]));
  return {
    advantage, aggregation, ratio: factors.map((f) => f.ratio), gate: factors.map((f) => f.gate), weight, total,
    share: rows.map((i) => (total > 0 ? (weight[i] * lengths[i]) / total : 0)),
    clipped: rows.map((i) => factors[i].gate === 0 && advantage[i] !== 0),
    dead: rows.map((i) => spec.baseline.name !== "no_baseline" && isDead(peers[i])),
  };
}

// ---- text ----

const SIGN = { "-1": "−", 0: "", 1: "+" };
const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function number(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size < 1e-4 || size >= 1e5 ? size.toExponential(1).replace("e-", "e−").replace("e+", "e") : String(Number(size.toPrecision(3)));
}
const signed = (x) => SIGN[Math.sign(x)] + number(x);
const percent = (x) => {
  const size = 100 * Math.abs(x), shown = size < 9.95 ? size.toFixed(1) : Math.round(size);
  return x === 0 ? "0 %" : `${SIGN[Math.sign(x)]}${shown} %`;
};
const perToken = (x, relative) => (relative && x !== 0 ? `${signed(x)} %` : signed(x));
const product = (r, i) => `A ${signed(r.advantage[i])} · W ${number(r.aggregation[i])} · ratio ${number(r.ratio[i])} · ` +
  `gate ${number(r.gate[i])} = ${signed(r.weight[i])}`;
const named = ({ group, rewards }, i) => `${new Set(group).size > 1 ? `${group[i] + 1}·` : ""}${i + 1} ` +
  (rewards[i] === 1 ? "✓" : rewards[i] === 0 ? "✗" : number(rewards[i]));
const mark = (reward) => (reward === 1 ? "right 1" : reward === 0 ? "wrong 0" : `reward ${number(reward)}`);

// ---- the pictures ----

const ROW = 24, TOP = 22;

// The colour of a weight: orange up, purple down, on one scale for all panels.
function colour(weight, largest) {
  const p = largest > 0 ? (200 * Math.abs(weight)) / largest : 0, side = weight > 0 ? "up" : "down";
  return p <= 100 ? `color-mix(in srgb, var(--${side}) ${p}%, var(--zero))` : `color-mix(in srgb, var(--${side}-most) ${p - 100}%, var(--${side}))`;
}

function panel(result, state, { width, largest, id }) {
  const { lengths, group, relative } = state, n = lengths.length;
  const left = 14 + 6.5 * Math.max(...lengths.map((_, i) => named(state, i).length)), right = 144, columns = Math.max(8, 8 * Math.ceil(Math.max(...lengths) / 8));
  const cell = (width - left - right) / columns, gap = cell > 5 ? 1 : 0, bottom = TOP + ROW * n;
  const ticks = [1, ...[1, 2, 3, 4].map((k) => (k * columns) / 4)];
  const row = (i) => {
    const y = TOP + ROW * i, shown = relative && result.total ? (100 * result.weight[i]) / result.total : result.weight[i];
    const fill = result.clipped[i] ? `url(#${id})` : colour(shown, largest);
    const cells = Array.from({ length: lengths[i] }, (_, t) =>
      `<rect class="cell" x="${(left + t * cell).toFixed(2)}" y="${y + 3}" width="${(cell - gap).toFixed(2)}" height="${ROW - 6}"/>`).join("");
    return `<g class="row" data-row="${i}" data-weight="${result.weight[i]}" data-share="${result.share[i]}">
      <title>completion ${i + 1}, each of its ${lengths[i]} tokens: ${product(result, i)}</title>
      <rect class="back" x="0" y="${y}" width="${width}" height="${ROW}"/>
      <text x="${left - 8}" y="${y + 16}" text-anchor="end">${named(state, i)}</text>
      <g fill="${fill}">${cells}</g>
      <rect class="edge" x="${left}" y="${y + 2.5}" width="${(lengths[i] * cell).toFixed(2)}" height="${ROW - 5}"/>
      <text x="${width - 64}" y="${y + 16}" text-anchor="end">${perToken(shown, relative)}</text>
      <text x="${width - 4}" y="${y + 16}" text-anchor="end">${percent(result.share[i])}</text></g>`;
  };
  const rule = (i) => (i > 0 && group[i] !== group[i - 1] ? `<line class="rule" x1="0" x2="${width}" y1="${TOP + ROW * i}" y2="${TOP + ROW * i}"/>` : "");
  const summary = lengths.map((_, i) => `completion ${i + 1} ${perToken(result.weight[i], false)} per token, ${percent(result.share[i])} of the step`);
  return `<svg role="img" width="${width}" height="${bottom + 30}"><title>${escape(state.specs[result.name].label)}: ${summary.join("; ")}</title>
    <defs><pattern id="${id}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect class="hatch-back" width="5" height="5"/><line class="hatch" x1="0" x2="0" y1="0" y2="5"/></pattern></defs>
    <text class="soft" x="${width - 64}" y="14" text-anchor="end">push / token</text>
    <text class="soft" x="${width - 4}" y="14" text-anchor="end">share</text>
    ${lengths.map((_, i) => row(i) + rule(i)).join("")}
    ${ticks.map((t) => `<text class="soft" x="${(left + (t - 0.5) * cell).toFixed(1)}" y="${bottom + 13}" text-anchor="middle">${t}</text>`).join("")}
    <text class="soft" x="${left + (columns * cell) / 2}" y="${bottom + 27}" text-anchor="middle">token position</text></svg>`;
}

function notes(result, state) {
  const dead = [...new Set(state.group.filter((_, i) => result.dead[i]))], prompts = new Set(state.group).size;
  const out = dead.map((q) => (prompts > 1 ? `prompt ${q + 1}: ` : "") + "every reward is equal: no signal");
  if (result.clipped.some(Boolean)) {
    out.push(`clipped, so no gradient: completion ${result.clipped.flatMap((c, i) => (c ? [i + 1] : [])).join(", ")}`);
  }
  return out.map((text) => `<p class="note">${text}</p>`).join("");
}

function table(results, { specs, lengths, rewards }) {
  const head = ["recipe", "completion", "reward", "length", "A", "W", "ratio", "gate", "push per token", "share of the step"];
  const line = (r, i) => `<tr><th scope="row">${escape(specs[r.name].label)}</th>` + [i + 1, number(rewards[i]), lengths[i], signed(r.advantage[i]),
    number(r.aggregation[i]), number(r.ratio[i]), number(r.gate[i]), signed(r.weight[i]), percent(r.share[i])].map((x) => `<td>${x}</td>`).join("") + "</tr>";
  return `<table><thead><tr>${head.map((h) => `<th scope="col">${h}</th>`).join("")}</tr></thead><tbody>` +
    results.filter((r) => !r.error).map((r) => lengths.map((_, i) => line(r, i)).join("")).join("") + "</tbody></table>";
}

// ---- the controls ----

const KEYS = ["specs", "recipes", "lengths", "rewards", "group", "ratio", "eps_low", "eps_high", "length_limit", "micro_batches", "relative"];
const attributes = (key, label, i) => `data-key="${key}" data-lm-suppress-shortcuts="true" aria-label="${label}"` + (i === undefined ? "" : ` data-index="${i}"`);
const field = (key, text, more) => `<label>${text}<input type="number" ${attributes(key, text)} ${more}></label>`;
const tick = (key, text) => `<label class="tick"><input type="checkbox" ${attributes(key, text)}>${text}</label>`;

function bar(specs) {
  const options = ["none", ...Object.keys(specs)].map((name) => `<option value="${escape(name)}">${escape(specs[name]?.label ?? name)}</option>`).join("");
  const choose = [0, 1, 2].map((i) => `<label>recipe ${i + 1}<select ${attributes("recipes", `recipe ${i + 1}`, i)}>${options}</select></label>`).join("");
  return `<div class="bar">${choose}</div><div class="bar">${field("count", "completions", 'min="2" max="8" step="1"')}
    ${field("eps_low", "clip low", 'min="0" step="0.01" placeholder="own"')}${field("eps_high", "clip high", 'min="0" step="0.01" placeholder="own"')}
    ${field("length_limit", "C = max_new_tokens", 'min="1" step="1"')}${field("micro_batches", "micro-batches", 'min="1" max="8" step="1"')}
    ${tick("prompts", "second prompt")}${tick("relative", "in percent of each recipe's step")}</div>`;
}

const rowControls = (i) => `<span class="who" data-who="${i}"></span>
  <button type="button" ${attributes("rewards", "", i)}></button>
  <label>length<input type="range" min="1" max="${LONGEST}" step="1" ${attributes("lengths", `length of completion ${i + 1}`, i)}><output></output></label>
  <label>ratio<input type="range" min="0.5" max="2" step="0.01" ${attributes("ratio", `importance ratio of completion ${i + 1}`, i)}><output></output></label>`;

function parse(input, name, { min, max = Infinity, whole = false, blank = false }) {
  if (blank && input.value === "" && !input.validity.badInput) return null;
  const x = input.value === "" ? NaN : Number(input.value);
  if (x >= min && x <= max && (!whole || Number.isInteger(x))) return x;
  const range = max === Infinity ? `${min} or more` : `${min} to ${max}`;
  throw new Error(`${name} is ${input.value === "" ? "not a number" : input.value}: expected ${whole ? "a whole number, " : ""}${range}${blank ? ", or nothing for the recipe's own" : ""}.`);
}

const replaced = (values, i, value) => values.map((old, j) => (j === Number(i) ? value : old));
const prompts = (n, two) => Array.from({ length: n }, (_, i) => (two && i >= Math.ceil(n / 2) ? 1 : 0));
const grown = (values, n) => Array.from({ length: n }, (_, i) => values[i] ?? values[i % values.length]);

// What a control changes in the state; throws where its text is not a value.
const CHANGES = {
  recipes: (input, s, i) => ({ recipes: [0, 1, 2].map((j) => (j === Number(i) ? input.value : s.recipes[j] ?? "none")).filter((r) => r !== "none") }),
  count(input, s) {
    const n = parse(input, "completions", { min: 1, max: 8, whole: true });
    const [lengths, rewards, ratio] = [s.lengths, s.rewards, s.ratio].map((values) => grown(values, n));
    return { lengths, rewards, ratio, group: prompts(n, new Set(s.group).size > 1), micro_batches: Math.min(s.micro_batches, n) };
  },
  prompts: (input, s) => ({ group: prompts(s.lengths.length, input.checked) }),
  relative: (input) => ({ relative: input.checked }),
  lengths: (input, s, i) => ({ lengths: replaced(s.lengths, i, Number(input.value)) }),
  ratio: (input, s, i) => ({ ratio: replaced(s.ratio, i, Number(input.value)) }),
  rewards: (_, s, i) => ({ rewards: replaced(s.rewards, i, s.rewards[i] > 0 ? 0 : 1) }),
  eps_low: (input) => ({ eps_low: parse(input, "clip low", { min: 0, blank: true }) }),
  eps_high: (input) => ({ eps_high: parse(input, "clip high", { min: 0, blank: true }) }),
  length_limit: (input) => ({ length_limit: parse(input, "C", { min: 1, whole: true }) }),
  micro_batches: (input, s) => ({ micro_batches: parse(input, "micro-batches", { min: 1, max: s.lengths.length, whole: true }) }),
};

function show(control, s, wrong) {
  const { key, index: i } = control.dataset;
  if (key === "rewards") {
    control.textContent = mark(s.rewards[i]);
    control.setAttribute("aria-label", `reward of completion ${Number(i) + 1}: ${mark(s.rewards[i])}`);
  } else if (control.type === "checkbox") {
    control.checked = key === "prompts" ? new Set(s.group).size > 1 : s[key];
  } else if (!wrong.has(key)) {
    const value = key === "count" ? s.lengths.length : key === "recipes" ? s.recipes[i] ?? "none" : i === undefined ? s[key] : s[key][i];
    if (control.type !== "number" || control.value === "" || Number(control.value) !== value) control.value = value ?? "";
    if (control.type === "range") control.nextElementSibling.textContent = key === "ratio" ? value?.toFixed(2) : value;
  }
}

function render({ model, el }) {
  const root = document.createElement("div"), id = `hatch-${Math.random().toString(36).slice(2)}`;
  const wrong = new Map(); // control -> message, while its text is not a value
  let results = [], selected = 0, busy = false;
  root.className = "grpo-explorer";
  root.innerHTML = `<style>${CSS}</style>${bar(model.get("specs"))}<div class="rows" role="group" aria-label="each completion"></div>
    <div class="message" role="alert"></div><div class="legend"></div><div class="panels"></div>
    <details><summary ${attributes("", "the numbers as a table")}>the numbers as a table</summary><div class="table"></div></details>`;
  el.append(root);
  const at = (selector) => root.querySelector(selector);
  const state = () => Object.fromEntries(KEYS.map((key) => [key, model.get(key)]));

  function select(i) {
    selected = Math.min(i, model.get("lengths").length - 1);
    root.querySelectorAll("[data-row]").forEach((g) => g.classList.toggle("on", Number(g.dataset.row) === selected));
    root.querySelectorAll(".why").forEach((p) => {
      p.innerHTML = `<b>${named(state(), selected)}</b>&ensp;${product(results[p.dataset.panel], selected)}`;
    });
  }

  function plots(s) {
    const good = results.filter((r) => !r.error);
    const scale = (r) => (s.relative ? (r.total ? 100 / r.total : 0) : 1);
    const largest = Math.max(0, ...good.flatMap((r) => r.weight.map((w) => Math.abs(w) * scale(r))));
    at(".legend").innerHTML = good.length ? `<span>pushed down</span><span>${perToken(-largest, s.relative)}</span><i class="ramp"></i>
      <span>${perToken(largest, s.relative)}</span><span>pushed up</span><i class="hatched"></i><span>clipped: no gradient</span>
      <span class="soft">${s.relative ? "push per token in percent of the recipe's step" : "push per token = gradient weight"}, one colour scale for all panels; exact</span>` : "";
    at(".panels").style.setProperty("--count", results.length);
    at(".panels").innerHTML = results.map((r, k) => `<section data-recipe="${escape(r.name)}"><h4>${escape(s.specs[r.name].label)}
      <span class="soft">W = ${escape(s.specs[r.name].formula)}</span></h4><div class="plot"></div></section>`).join("");
    root.querySelectorAll(".plot").forEach((plot, k) => {
      const r = results[k], width = Math.max(300, Math.floor(plot.clientWidth));
      plot.innerHTML = r.error ? `<p class="message" role="alert">${escape(r.error)}</p>`
        : `${panel(r, s, { width, largest, id: `${id}-${k}` })}<p class="why" data-panel="${k}"></p>${notes(r, s)}`;
    });
    at(".table").innerHTML = table(results, s);
    select(selected);
  }

  function draw() {
    const s = state();
    if (root.querySelectorAll("[data-who]").length !== s.lengths.length) at(".rows").innerHTML = s.lengths.map((_, i) => rowControls(i)).join("");
    let message = [...wrong.values()].join(" ");
    try {
      root.querySelectorAll("[data-key]:not(summary)").forEach((control) => show(control, s, wrong));
      const two = new Set(s.group).size > 1;
      root.querySelectorAll("[data-who]").forEach((who, i) => (who.textContent = `${two ? `prompt ${s.group[i] + 1} · ` : ""}completion ${i + 1}`));
      results = message ? [] : weights(s);
    } catch (error) {
      [message, results] = [error.message, []];
    }
    at("details").hidden = Boolean(message);
    at(".message").textContent = message;
    plots(s);
  }

  function change(event) {
    const { key, index } = event.target.closest("[data-key]")?.dataset ?? {};
    if (!CHANGES[key] || (event.type === "click") !== (key === "rewards")) return;
    wrong.delete(key);
    try {
      const changes = CHANGES[key](event.target, state(), index);
      busy = true;
      Object.entries(changes).forEach(([name, value]) => model.set(name, value));
      model.save_changes();
    } catch (error) {
      wrong.set(key, error.message);
    }
    busy = false;
    draw();
  }

  const point = (event) => {
    const row = event.target.closest?.("[data-row]")?.dataset.row ?? event.target.closest?.(".rows [data-index]")?.dataset.index;
    if (row !== undefined && results.length) select(Number(row));
  };
  root.addEventListener("input", change);
  root.addEventListener("click", change);
  root.addEventListener("pointerover", point);
  root.addEventListener("focusin", point);
  const redraw = () => busy || (wrong.clear(), draw());
  KEYS.forEach((key) => model.on(`change:${key}`, redraw));
  let seen = 0;
  const watch = new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - seen) > 1) draw();
    seen = entry.contentRect.width;
  });
  watch.observe(root);
  draw();
  return () => {
    watch.disconnect();
    KEYS.forEach((key) => model.off(`change:${key}`, redraw));
  };
}

const CSS = `
.grpo-explorer { --text: var(--jp-ui-font-color1, #222); --quiet: var(--jp-ui-font-color2, #595959); --line: #b4b4b4; --shade: #0000000d;
  --zero: #f7f7f7; --up: #f1a340; --up-most: #b35806; --down: #998ec3; --down-most: #542788; --warn: #a4262c; --accent: #2a78d6; color-scheme: light;
  color: var(--text); background: transparent; font: 13px/1.4 system-ui, sans-serif; font-variant-numeric: tabular-nums; padding: 4px; container-type: inline-size; }
[data-jp-theme-light="false"] .grpo-explorer, .vscode-dark .grpo-explorer { --text: var(--jp-ui-font-color1, #e4e4e4);
  --quiet: var(--jp-ui-font-color2, #b0b0b0); --line: #777; --shade: #ffffff14; --zero: #333; --up: #b5691a; --up-most: #ffbe6b;
  --down: #7563ad; --down-most: #cdbffb; --warn: #ff9a9a; --accent: #8ab8f0; color-scheme: dark; }
.grpo-explorer .bar { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: end; margin-bottom: 10px; }
.grpo-explorer .bar label { display: grid; gap: 2px; color: var(--quiet); font-size: 12px; }
.grpo-explorer .bar label.tick { display: flex; gap: 5px; align-items: center; color: var(--text); padding-bottom: 4px; }
.grpo-explorer :is(select, button, input[type="number"]) { font: inherit; font-size: 13px; color: var(--text); padding: 3px 6px; box-sizing: border-box;
  background: transparent; border: 1px solid var(--line); border-radius: 4px; }
.grpo-explorer select option { color: CanvasText; background: Canvas; }
.grpo-explorer select { min-width: 150px; }
.grpo-explorer input[type="number"] { width: 92px; }
.grpo-explorer :is(select, button, input):focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.grpo-explorer input { margin: 0; accent-color: var(--accent); }
.grpo-explorer .rows { display: grid; grid-template-columns: max-content 88px minmax(0, 1fr) minmax(0, 1fr); gap: 4px 18px; align-items: center; max-width: 820px; margin-bottom: 12px; }
.grpo-explorer .rows label { display: grid; grid-template-columns: max-content minmax(40px, 1fr) 2ch; gap: 8px; align-items: center; }
.grpo-explorer .rows label:has([data-key="ratio"]) { grid-template-columns: max-content minmax(40px, 1fr) 4ch; }
@container (max-width: 560px) { .grpo-explorer .rows { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); } }
.grpo-explorer .rows input { width: 100%; }
.grpo-explorer .rows output { text-align: right; }
.grpo-explorer .rows button { cursor: pointer; padding: 1px 6px; }
.grpo-explorer .legend { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; font-size: 12px; margin-bottom: 8px; }
.grpo-explorer .legend i { height: 12px; border: 1px solid var(--line); box-sizing: border-box; }
.grpo-explorer .ramp { width: 140px; background: linear-gradient(to right, var(--down-most), var(--down), var(--zero), var(--up), var(--up-most)); }
.grpo-explorer .hatched { width: 24px; margin-left: 14px; background: repeating-linear-gradient(135deg, var(--quiet) 0 1.2px, transparent 1.2px 5px); }
.grpo-explorer .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 12px 24px; }
@container (min-width: 960px) { .grpo-explorer .panels { grid-template-columns: repeat(var(--count), minmax(0, 1fr)); } }
.grpo-explorer section { min-width: 0; }
.grpo-explorer h4 { margin: 0 0 2px; font-size: 14px; font-weight: 600; color: var(--text); }
.grpo-explorer h4 .soft { font-weight: 400; font-size: 12px; margin-left: 6px; }
.grpo-explorer .soft { color: var(--quiet); fill: var(--quiet); }
.grpo-explorer svg { display: block; max-width: 100%; }
.grpo-explorer svg text { fill: var(--text); font-size: 12px; }
.grpo-explorer svg text.soft { fill: var(--quiet); font-size: 11px; }
.grpo-explorer .back { fill: transparent; }
.grpo-explorer .on .back { fill: var(--shade); }
.grpo-explorer .edge { fill: none; stroke: var(--line); stroke-width: 1; }
.grpo-explorer .rule { stroke: var(--text); stroke-width: 1; }
.grpo-explorer .hatch { stroke: var(--quiet); stroke-width: 1.4; }
.grpo-explorer .hatch-back { fill: var(--zero); }
.grpo-explorer :is(.why, .note) { margin: 2px 0; font-size: 12px; }
.grpo-explorer .note { font-style: italic; }
.grpo-explorer .message { color: var(--warn); font-weight: 600; margin: 6px 0; }
.grpo-explorer .message:empty { display: none; }
.grpo-explorer details { margin-top: 8px; font-size: 12px; }
.grpo-explorer summary { cursor: pointer; width: max-content; }
.grpo-explorer .table { overflow-x: auto; }
.grpo-explorer table { border-collapse: collapse; margin-top: 6px; font-size: 12px; color: var(--text); }
.grpo-explorer :is(td, thead th) { text-align: right; padding: 2px 10px; }
.grpo-explorer th[scope="row"], .grpo-explorer thead th:first-child { text-align: left; font-weight: 400; }
`;

export default { render };
