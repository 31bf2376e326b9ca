// The push lens: text of every completion, coloured by push; the ledger of the token in focus.
// Only the completions on the screen stand in the document.

const CHUNK = 300; // tokens of a completion that stand in one piece of the list
const LEVELS = 8; // shades of a colour
const SCREENS = 0.6; // how much is drawn above and below the screen, in screens
const ORDERS = {
  size: "size of the share",
  share: "share of the step",
  mean: "push per token",
  length: "length",
  reward: "reward",
  file: "place in the file",
};
const NAMES = {
  advantage: "advantage",
  W: "W",
  correction: "correction",
  ratio: "ratio",
  gate: "gate",
  kl: "KL",
  push: "push",
  share: "share",
};
const MOVES = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  Home: [0, Number.NEGATIVE_INFINITY],
  End: [0, Number.POSITIVE_INFINITY],
};
const byId = (id) => document.getElementById(id);

// ---- data

async function unpacked(id) {
  const packed = atob(byId(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k++) bytes[k] = packed.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function opened(column, block) {
  const { each, count, at } = column;
  const mantissa = new Int16Array(block, at, count);
  const exponent = new Int8Array(block, at + 2 * count, count);
  const place = (row, token) => (each === "row" ? row : token);
  return {
    each,
    name: column.name,
    value: (row, token) => mantissa[place(row, token)] * 10 ** exponent[place(row, token)],
    text: (row, token) =>
      minus(Number(`${mantissa[place(row, token)]}e${exponent[place(row, token)]}`)),
  };
}

function readable(data, block) {
  const total = data.count.reduce((sum, count) => sum + count, 0);
  let next = 0;
  const start = data.count.map((count) => {
    next += count;
    return next - count;
  });
  const recipes = data.recipes.map((recipe) => ({
    ...recipe,
    mean: opened(recipe.mean, block),
    share: opened(recipe.share, block),
    factors: Object.fromEntries(
      Object.entries(recipe.factors).map(([name, column]) => [name, opened(column, block)]),
    ),
  }));
  return {
    ...data,
    start,
    recipes,
    logp: data.logp.map((column) => opened(column, block)),
    word: new Uint32Array(block, data.word, total),
    trained: new Uint8Array(block, data.trained, total),
  };
}

// ---- text

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const minus = (x) => String(x).replaceAll("-", "−");
const signed = (text) => (text === "0" || text.startsWith("−") ? text : `+${text}`);
// control characters, line separators and marks that change the direction of writing
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

function visible(token) {
  if (token === "") return "∅";
  return token.replace(UNSEEN, (c) => {
    if (c === "\n") return "↵\n";
    return c === "\t" ? "→\t" : `\\u{${c.codePointAt(0).toString(16)}}`;
  });
}
const oneLine = (text) => text.replace(/\s+/g, " ").trim();
const tail = (text) => (text.length <= 60 ? text : `… ${text.slice(-60)}`);
const rewardOf = (data, row) =>
  data.reward[row] === null ? "not scored" : minus(data.reward[row]);

// ---- one completion

function shade(data, factors, row, token) {
  if (!data.trained[token]) return "out";
  const share = factors.share.value(row, token);
  const size = Math.abs(share) / data.end;
  const level = Math.ceil(LEVELS * Math.sqrt(Math.min(1, size)));
  const closed = factors.gate?.value(row, token) === 0;
  const clipped = closed && factors.advantage.value(row, token) !== 0;
  const name = share === 0 ? "zero" : `${share > 0 ? "up" : "down"} s${level}`;
  return clipped ? `${name} clipped` : name;
}

function tokensOf(data, k, row, from) {
  const { factors } = data.recipes[k];
  const end = Math.min(data.count[row], from + CHUNK);
  const parts = [];
  for (let t = from; t < end; t++) {
    const token = data.start[row] + t;
    const text = escaped(visible(data.words[data.word[token]]));
    parts.push(`<span class="${shade(data, factors, row, token)}" data-t="${t}">${text}</span>`);
  }
  return parts.join("");
}

function headOf(data, row) {
  const prompt = visible(oneLine(data.prompts[data.group[row]]));
  const name = `prompt ${data.group[row]}`;
  return `<h3>completion ${data.completion[row]}</h3>
    <span>reward ${rewardOf(data, row)}</span> <span>${data.length[row]} tokens</span>
    <details><summary>${name}: ${escaped(tail(prompt))}</summary>
    <div class="prompt">${escaped(visible(data.prompts[data.group[row]]))}</div></details>`;
}

function pieceOf(data, shown, row, from) {
  const columns = shown.map((k) => {
    const { name, mean, share } = data.recipes[k];
    const numbers = `push per token ${signed(mean.text(row))}, share ${signed(share.text(row))} %`;
    const head = from === 0 ? `<p><b>${escaped(name)}</b> ${numbers}</p>` : "";
    const text = tokensOf(data, k, row, from);
    return `<div data-recipe="${k}">${head}<div class="text">${text}</div></div>`;
  });
  const head = from === 0 ? `<div class="head">${headOf(data, row)}</div>` : "";
  return `${head}<div class="side">${columns.join("")}</div>`;
}

// ---- ledger

const factorOf = (name) => (["push", "share"].includes(name) ? "" : `factor ${name}`);

function product(factors, row, token) {
  const { advantage, W, correction, ratio, gate, kl, push } = factors;
  const parts = [advantage, W, ratio, gate, correction].filter(Boolean);
  const line = parts.map((column) => column.text(row, token)).join(" · ");
  return `${line}${kl ? ` + ${kl.text(row, token)}` : ""} = ${push.text(row, token)}`;
}

// step of the formula -> the factor that it makes
const MAKES = { reward: "advantage", centred: "advantage", "KL term": "kl" };

function stepsOf(recipe, row, token) {
  const { factors, formula, written } = recipe;
  const lines = Object.entries(formula).flatMap(([name, text]) => {
    const factor = factors[MAKES[name] ?? name];
    if (name === "push") return [[name, text, product(factors, row, token)]];
    if (!(name in written[row])) return [[name, text, factor.text(row, token)]];
    return factor.each === "row" ? [[name, text, minus(written[row][name])]] : [];
  });
  const rows = lines.map(
    ([name, text, numbers]) => `<dt>${name}</dt><dd>${escaped(text)}<br>= ${escaped(numbers)}</dd>`,
  );
  return `<h4>${escaped(recipe.name)}, step by step</h4><dl>${rows.join("")}</dl>`;
}

function ledgerOf(data, shown, row, t) {
  const token = data.start[row] + t;
  const text = `<code>${escaped(visible(data.words[data.word[token]]))}</code>`;
  const where = `token ${t} of completion ${data.completion[row]}, prompt ${data.group[row]}`;
  const head = `<h3>${text}</h3><p>${where}, reward ${rewardOf(data, row)}</p>`;
  if (!data.trained[token]) return `${head}<p>This token is not trained: no push.</p>`;
  const logps = data.logp.map((column) => `${column.name} = ${column.text(row, token)}`);
  const recipes = shown.map((k) => data.recipes[k]);
  const used = Object.keys(NAMES).filter((name) => recipes.some(({ factors }) => factors[name]));
  const rows = used.map((name) => {
    const cells = recipes.map(({ factors }) => {
      const found = factors[name]?.text(row, token) ?? "none";
      return `<td data-factor="${name}">${name === "share" ? `${found} %` : found}</td>`;
    });
    const head = `<th scope="row" class="${factorOf(name)}">${NAMES[name]}</th>`;
    return `<tr>${head}${cells.join("")}</tr>`;
  });
  const names = recipes.map(({ name }) => `<th scope="col">${escaped(name)}</th>`).join("");
  const steps = recipes.map((recipe) => stepsOf(recipe, row, token)).join("");
  return `${head}<p>${logps.join(", ")}</p>
    <table><thead><tr><td></td>${names}</tr></thead><tbody>${rows.join("")}</tbody></table>
    ${steps}`;
}

function sentence(data, shown, row, t) {
  const token = data.start[row] + t;
  const text = `"${visible(data.words[data.word[token]])}", token ${t}`;
  if (!data.trained[token]) return `${text}, not trained`;
  const pushes = shown.map((k) => {
    const { name, factors } = data.recipes[k];
    const clipped = shade(data, factors, row, token).includes("clipped") ? ", clipped" : "";
    const share = factors.share.text(row, token);
    return `${name}: push ${factors.push.text(row, token)}, share ${share} %${clipped}`;
  });
  return `${text}. ${pushes.join(". ")}`;
}

// ---- the order of completions

function sorted(data, key, descending, recipe) {
  const order = data.completion.map((_, row) => row);
  const values = {
    file: (row) => row,
    size: (row) => Math.abs(recipe.share.value(row)),
    mean: (row) => recipe.mean.value(row),
    share: (row) => recipe.share.value(row),
    length: (row) => data.length[row],
    reward: (row) => data.reward[row],
  }[key];
  const sign = descending ? -1 : 1;
  const last = (row) => Number(values(row) === null);
  return order.sort((a, b) => last(a) - last(b) || sign * (values(a) - values(b)) || a - b);
}

// ---- the list, of which only what is near the screen is in the document

class List {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.pieces = [];
    this.heights = new Map();
    this.drawn = new Map();
    this.open = new Set();
    this.above = root.appendChild(document.createElement("div"));
    this.below = root.appendChild(document.createElement("div"));
    this.letters = data.words.map((word) => word.length);
    addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    new ResizeObserver(() => {
      if (root.clientWidth === this.width) return;
      this.show(this.order, this.shown);
    }).observe(root);
    root.addEventListener("toggle", (event) => this.folded(event.target), true);
  }

  show(order, shown) {
    this.order = order;
    this.shown = shown;
    this.width = this.root.clientWidth;
    this.rank = new Map(order.map((row, place) => [row, place]));
    this.pieces = order.flatMap((row) => {
      const count = Math.max(1, Math.ceil(this.data.count[row] / CHUNK));
      return Array.from({ length: count }, (_, k) => ({ row, from: k * CHUNK }));
    });
    this.keys = this.pieces.map(({ row, from }) => `${row},${from}`);
    this.place = new Map(this.keys.map((key, k) => [key, k]));
    this.drawn.forEach((element) => element.remove());
    this.drawn.clear();
    this.heights.clear();
    this.stack();
    this.draw();
  }

  // a guess of the height of a piece, until it has been drawn
  guessed({ row, from }) {
    const narrow = this.width < 700;
    const columns = narrow ? 1 : this.shown.length;
    const perLine = Math.max(10, this.width / columns / 8.5);
    const begin = this.data.start[row] + from;
    const end = this.data.start[row] + Math.min(this.data.count[row], from + CHUNK);
    let letters = 0;
    for (let token = begin; token < end; token++) letters += this.letters[this.data.word[token]];
    const text = 24 * Math.ceil(letters / perLine) + 30;
    return text * (narrow ? this.shown.length : 1) + (from === 0 ? 70 : 0);
  }

  stack() {
    this.tops = new Float64Array(this.pieces.length + 1);
    this.pieces.forEach((piece, k) => {
      const key = this.keys[k];
      if (!this.heights.has(key)) this.heights.set(key, this.guessed(piece));
      this.tops[k + 1] = this.tops[k] + this.heights.get(key);
    });
  }

  at(height) {
    let low = 0;
    let high = this.pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  draw() {
    if (this.pieces.length === 0) return;
    const top = -this.root.getBoundingClientRect().top;
    const first = this.at(top - SCREENS * innerHeight);
    const last = this.at(top + (1 + SCREENS) * innerHeight);
    const keep = new Set(this.keys.slice(first, last + 1));
    const anchor = this.anchor(keep);
    this.replace(keep, first, last);
    const changed = this.measure();
    if (changed) this.stack();
    this.above.style.height = `${this.tops[first]}px`;
    this.below.style.height = `${this.tops[this.pieces.length] - this.tops[last + 1]}px`;
    if (anchor) scrollBy(0, anchor.element.getBoundingClientRect().top - anchor.top);
  }

  // a piece that is on the screen and stays there: it must not move
  anchor(keep) {
    const staying = [...this.drawn].filter(([key]) => keep.has(key)).map(([, element]) => element);
    const element = staying.find((peer) => peer.getBoundingClientRect().bottom > 0);
    return element && { element, top: element.getBoundingClientRect().top };
  }

  replace(keep, first, last) {
    for (const [key, element] of this.drawn) {
      if (keep.has(key)) continue;
      if (element.contains(document.activeElement)) this.root.focus({ preventScroll: true });
      element.remove();
      this.drawn.delete(key);
    }
    let next = this.above.nextElementSibling;
    for (let k = first; k <= last; k++) {
      const element = this.drawn.get(this.keys[k]) ?? this.make(k);
      if (element === next) next = next.nextElementSibling;
      else this.root.insertBefore(element, next);
    }
  }

  make(k) {
    const { row, from } = this.pieces[k];
    const element = document.createElement("article");
    element.dataset.row = row;
    element.setAttribute("role", "listitem");
    element.setAttribute("aria-setsize", this.order.length);
    element.setAttribute("aria-posinset", this.rank.get(row) + 1);
    element.innerHTML = pieceOf(this.data, this.shown, row, from);
    const details = element.querySelector("details");
    if (details) details.open = this.open.has(row);
    this.drawn.set(this.keys[k], element);
    return element;
  }

  measure() {
    let changed = false;
    for (const [key, element] of this.drawn) {
      const height = element.getBoundingClientRect().height;
      changed ||= Math.abs(height - this.heights.get(key)) > 0.5;
      this.heights.set(key, height);
    }
    return changed;
  }

  folded(details) {
    const row = Number(details.closest("article").dataset.row);
    if (details.open) this.open.add(row);
    else this.open.delete(row);
    this.draw();
  }

  // the element of a token; the list scrolls to it where it is not drawn
  token(row, t, k) {
    const key = `${row},${CHUNK * Math.floor(t / CHUNK)}`;
    if (!this.drawn.has(key)) {
      const top = this.root.getBoundingClientRect().top + scrollY;
      scrollTo(0, top + this.tops[this.place.get(key)] - innerHeight / 3);
      this.draw();
    }
    return this.drawn.get(key).querySelector(`[data-recipe="${k}"] [data-t="${t}"]`);
  }
}

// ---- controls

function barOf(data) {
  const names = data.recipes.map(({ name }) => name);
  const choices = names.length > 1 ? [...names, "side by side"] : names;
  const radios = choices.map(
    (name, k) => `<label><input type="radio" name="recipe" value="${k}"> ${escaped(name)}</label>`,
  );
  const orders = Object.entries(ORDERS).map(
    ([key, name]) => `<option value="${key}">${name}</option>`,
  );
  return `<fieldset><legend>Recipe</legend>${radios.join("")}</fieldset>
    <label>Sort by <select id="order">${orders.join("")}</select></label>
    <label><input type="checkbox" id="descending" checked> largest first</label>`;
}

function legendOf(data) {
  const shades = Array.from({ length: LEVELS }, (_, k) => k + 1);
  const swatch = (name, level) => `<i class="${name} s${level}"></i>`;
  const scale = [
    ...shades.toReversed().map((level) => swatch("down", level)),
    '<i class="zero"></i>',
    ...shades.map((level) => swatch("up", level)),
  ].join("");
  const end = `${Number(data.end.toPrecision(2))} %`;
  const totals = data.recipes.map(({ name, total }) => `${escaped(name)} ${total}`).join(", ");
  return `<p>−${end} <span class="scale">${scale}</span> +${end}
    of the step's total |push|, the share of one token. One scale for all recipes; a token of
    double colour has four times the share.</p>
    <p class="marks"><span class="up s4">pushed up</span> <span class="down s4">pushed down</span>
    <span class="clipped">clipped: no push from the reward</span>
    <span class="out">not trained</span></p>
    <p>Total |push| of the step: ${totals}. Point at a token, or move with the arrow keys, to see
    its ledger. Sorted by the first recipe shown.</p>`;
}

class Lens {
  constructor(data) {
    this.data = data;
    byId("bar").innerHTML = barOf(data);
    byId("legend").innerHTML = legendOf(data);
    byId("lens").hidden = false;
    byId("list").setAttribute("aria-label", "Completions. Arrow keys move between tokens.");
    document.querySelector(".formulas").open = innerWidth >= 700;
    this.list = new List(byId("list"), data);
    this.pinned = null;
    const start = data.recipes.length > 1 && innerWidth >= 700 ? data.recipes.length : 0;
    document.querySelector(`[name="recipe"][value="${start}"]`).checked = true;
    byId("bar").addEventListener("input", () => this.show());
    const root = byId("list");
    root.addEventListener("pointerover", (event) => this.point(event.target));
    root.addEventListener("pointerleave", () => this.write(this.pinned));
    root.addEventListener("click", (event) => this.pick(event.target));
    root.addEventListener("keydown", (event) => this.key(event));
    this.show();
  }

  show() {
    const chosen = Number(document.querySelector('[name="recipe"]:checked').value);
    const { recipes } = this.data;
    this.shown = chosen === recipes.length ? recipes.map((_, k) => k) : [chosen];
    const key = byId("order").value;
    const recipe = recipes[this.shown[0]];
    const order = sorted(this.data, key, byId("descending").checked, recipe);
    this.list.show(order, this.shown);
    if (this.pinned && !this.shown.includes(this.pinned.k)) this.pinned.k = this.shown[0];
    this.write(this.pinned);
  }

  placeOf(target) {
    const span = target.closest("[data-t]");
    if (!span) return null;
    return {
      row: Number(span.closest("article").dataset.row),
      t: Number(span.dataset.t),
      k: Number(span.closest("[data-recipe]").dataset.recipe),
    };
  }

  point(target) {
    const place = this.placeOf(target);
    if (place) this.write(place);
  }

  pick(target) {
    const place = this.placeOf(target);
    if (place) this.pin(place);
  }

  write(place) {
    byId("ledger").innerHTML = place
      ? ledgerOf(this.data, this.shown, place.row, place.t)
      : "<p>No token chosen yet: point at one, or press an arrow key in the list.</p>";
  }

  pin(place) {
    this.pinned = place;
    document.querySelectorAll("#list .picked").forEach((old) => old.classList.remove("picked"));
    const span = this.list.token(place.row, place.t, place.k);
    const words = sentence(this.data, this.shown, place.row, place.t);
    span.tabIndex = -1;
    span.setAttribute("role", "button");
    span.setAttribute("aria-label", words);
    span.classList.add("picked");
    span.focus({ preventScroll: true });
    span.scrollIntoView({ block: "nearest" });
    this.write(place);
    byId("status").textContent = words;
  }

  key(event) {
    const move = MOVES[event.key];
    if (!move || event.target.closest("summary") || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const { order, rank } = this.list;
    const { row, t, k } = this.pinned ?? { row: order[0], t: -move[1], k: this.shown[0] };
    const rest = order.slice(rank.get(row) + move[0]);
    const next = move[0] < 0 && rank.get(row) === 0 ? row : (rest[0] ?? row);
    const last = this.data.count[next] - 1;
    if (last < 0) return;
    this.pin({ row: next, t: Math.max(0, Math.min(last, t + move[1])), k });
  }
}

try {
  const data = JSON.parse(new TextDecoder().decode(await unpacked("data")));
  window.lens = new Lens(readable(data, await unpacked("columns")));
} catch (error) {
  byId("fault").textContent =
    `The page could not be shown (${error.message}). Open it with a browser of 2024 or newer.`;
}
