// The token view: the text of a completion, each token coloured by its push under two recipes.

import { need, pushOf } from "./objective.js";
import {
  attributes,
  bar,
  colour,
  escaped,
  explorer,
  number,
  percent,
  select,
  signed,
  slider,
  tableOf,
  tick,
} from "./shared.js";

const FACTORS = ["advantage", "W", "ratio", "gate", "correction", "kl", "push", "share"];
const TINT = 2.5; // the strongest colour is still pale enough to read on
const steps = new WeakMap(); // of the fields: the push of the whole step, by recipe

function stepOf({ specs, fields }, name) {
  if (!steps.has(fields)) steps.set(fields, new Map());
  const ready = steps.get(fields);
  if (!ready.has(name)) ready.set(name, pushOf(specs[name], fields));
  return ready.get(name);
}

/* One entry per recipe: {name, total, and of the completion each factor, [t]}. */
export function answer(state) {
  const { completion: i, recipes, texts } = state;
  need(i < texts.length, "completion", i, `0 to ${texts.length - 1}`);
  return recipes.map((name) => {
    const step = stepOf(state, name);
    const own = FACTORS.map((factor) => [factor, step[factor][i]]);
    return { name, total: step.total, ...Object.fromEntries(own) };
  });
}

// ---- the text ----

const tokenAt = (s) => Math.min(s.token, s.fields.lengths[s.completion] - 1);

function spanOf(s, recipe, largest, [text, t]) {
  const shown = escaped(text).replace(/\n/g, "↵\n");
  if (t === null) return `<span class="out" title="not trained">${shown}</span>`;
  const push = s.relative ? recipe.share[t] : recipe.push[t];
  const kinds = { 1: "rises", "-1": "falls", 0: "still" };
  const cut = recipe.gate[t] === 0 ? " cut" : "";
  const picked = t === tokenAt(s) ? " picked" : "";
  const text_ = s.relative ? percent(push) : signed(push);
  return `<span data-token="${t}" class="${kinds[Math.sign(push)]}${cut}${picked}"
    title="token ${t}: push ${text_}" data-push="${recipe.push[t]}"
    style="background:${colour(push, TINT * largest)}">${shown}</span>`;
}

function column(s, recipe, largest) {
  const spans = s.texts[s.completion].map((token) => spanOf(s, recipe, largest, token));
  return `<section data-recipe="${escaped(recipe.name)}">
    <h4>${escaped(s.specs[recipe.name].label)}</h4><div class="text">${spans.join("")}</div>
    </section>`;
}

// ---- the chosen token ----

function productOf(recipe, t) {
  const of = (factor) => number(recipe[factor][t]);
  const names = ["advantage", "W", "ratio", "gate"];
  if (recipe.correction[t] !== 1) names.push("correction");
  const product = names.map((name) => `<span class="factor ${name}">${of(name)}</span>`);
  const kl = recipe.kl[t] === 0 ? "" : ` + <span class="factor kl">${of("kl")}</span>`;
  const words = `${names.map((name) => (name === "advantage" ? "A" : name)).join(" · ")}`;
  return `push = ${words}${kl && " + KL"} = ${product.join(" · ")}${kl} = ${signed(recipe.push[t])}`;
}

function draw(root, s, recipes) {
  const i = s.completion;
  const t = tokenAt(s);
  const pushes = recipes.map((r) => (s.relative ? r.share : r.push));
  const largest = Math.max(...pushes.flat().map(Math.abs));
  const [text] = s.texts[i].find(([, number]) => number === t);
  const formula = (r) => `<p>${escaped(r.name)}: ${productOf(r, t)}</p>`;
  const names = { advantage: "advantage A", kl: "KL", share: "share of the step" };
  const lines = FACTORS.map((factor) => [
    names[factor] ?? factor,
    ...recipes.map((r) => (factor === "share" ? percent : number)(r[factor][t])),
  ]);
  const reward = s.fields.rewards[i];
  root.querySelector("details").hidden = true;
  root.querySelector(".picture").innerHTML = `
    <details class="prompt"><summary ${attributes("", "the prompt")}>prompt
    ${s.fields.group[i] + 1}</summary><div class="text">${escaped(s.prompts[i])}</div></details>
    <p>completion ${i + 1}, reward ${number(reward)}, ${s.fields.lengths[i]} tokens</p>
    <div class="panels">${recipes.map((r) => column(s, r, largest)).join("")}</div>
    <p class="soft">solid line: pushed up; dashed: pushed down; hatched: gate 0. One colour scale for
    both, over this completion; exact</p>
    <h4>token ${t + 1}: <code>${escaped(JSON.stringify(text))}</code></h4>
    ${recipes.map(formula).join("")}
    <div class="wide">${tableOf(["factor", ...recipes.map((r) => r.name)], lines)}</div>`;
}

// ---- the controls ----

function controls(s) {
  const options = Object.entries(s.specs).map(([name, { label }]) => [name, label]);
  return (
    bar(
      select("recipes", "recipe 1", options, 0),
      select("recipes", "recipe 2", options, 1),
      tick("relative", "in percent of each recipe's step"),
    ) +
    bar(
      slider("completion", "completion", `min="1" max="${s.texts.length}" step="1"`),
      slider("token", "token", 'min="1" step="1"'),
    )
  );
}

function shown(key, s, i) {
  if (key === "recipes") return { value: s.recipes[i] };
  if (key === "completion") return { value: s.completion + 1 };
  if (key === "token") return { value: tokenAt(s) + 1, max: s.fields.lengths[s.completion] };
  return { value: s[key] };
}

const changes = {
  recipes: (input, s, i) => ({
    recipes: s.recipes.map((name, k) => (k === Number(i) ? input.value : name)),
  }),
  relative: (input) => ({ relative: input.checked }),
  completion: (input) => ({ completion: Number(input.value) - 1, token: 0 }),
  token: (input) => ({ token: Number(input.value) - 1 }),
};

const keys = ["specs", "fields", "texts", "prompts", "recipes", "completion", "token", "relative"];
const render = explorer({ keys, controls, shown, changes, answer, draw });
export default {
  render({ model, el }) {
    const done = render({ model, el });
    el.addEventListener("click", (event) => {
      const token = event.target.closest?.("[data-token]")?.dataset.token;
      if (token === undefined) return;
      model.set("token", Number(token));
      model.save_changes();
    });
    return done;
  },
};
