// A panel: native controls here, the picture made in Python. A value goes there, a picture or an
// error comes back.

import { bar, explorer, select, slider, tick } from "./shared.js";

const PATIENCE = 8000; // ms after which a panel says that it needs a kernel

function control(c) {
  if (c.kind === "range")
    return slider(c.key, c.label, `min="${c.min}" max="${c.max}" step="${c.step}"`);
  if (c.kind === "tick") return tick(c.key, c.label);
  return select(c.key, c.label, c.options);
}

const controlOf = (s, key) => s.controls.find((c) => c.key === key);
const controls = (s) => bar(...s.controls.map(control));

function shown(key, s) {
  const c = controlOf(s, key);
  const value = s.values[key];
  return { value, max: c.kind === "range" ? c.max : undefined };
}

function changes(key, s) {
  const c = controlOf(s, key);
  if (!c) return undefined;
  const read = (input) => {
    if (c.kind === "tick") return input.checked;
    return c.kind === "range" ? Number(input.value) : input.value;
  };
  return (input) => ({ values: { ...s.values, [key]: read(input) } });
}

function answer(s) {
  if (s.error) throw new Error(s.error);
  return s.content;
}

function draw(root, s, content) {
  const picture = root.querySelector(".picture");
  root.querySelector("details").hidden = true;
  if (root.drawn !== s.drawn) {
    picture.innerHTML = content;
    root.drawn = s.drawn;
  }
}

// ---- what the kernel has not answered yet ----

/* Says "computing" from a move of a control until the picture of exactly these values has come. */
function waiting(model, root) {
  let late = 0;
  root
    .querySelector(".message")
    .insertAdjacentHTML("beforebegin", '<div class="busy" role="status"></div>');
  const busy = root.querySelector(".busy");
  function settle() {
    const [asked, drawn] = [model.get("values"), model.get("drawn_for")];
    const isBusy = Object.keys(asked).some((key) => asked[key] !== drawn[key]);
    root.classList.toggle("computing", isBusy);
    root.querySelector(".picture").setAttribute("aria-busy", isBusy);
    busy.textContent = isBusy ? "computing …" : "";
    clearTimeout(late);
    if (!isBusy) return;
    late = setTimeout(() => {
      busy.textContent = "still computing … This needs a running kernel: run the cell first.";
    }, PATIENCE);
  }
  const events = ["change:values", "change:drawn_for"];
  events.forEach((event) => model.on(event, settle));
  settle();
  return () => {
    clearTimeout(late);
    events.forEach((event) => model.off(event, settle));
  };
}

const keys = ["controls", "values", "content", "error", "drawn"];
const render = explorer({ keys, controls, shown, changes, answer, draw });
export default {
  render({ model, el }) {
    const done = render({ model, el });
    const rest = waiting(model, el.querySelector(".grpo-explorer"));
    return () => {
      rest();
      done();
    };
  },
};
