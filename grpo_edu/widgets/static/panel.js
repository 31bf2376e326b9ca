// A panel: native controls here, the picture made in Python. A value goes there, a picture or an
// error comes back.

import { attributes, bar, explorer, select, slider, tick } from "./shared.js";

const REST = 150; // ms between the steps of a player
const PATIENCE = 8000; // ms after which a panel says that it needs a kernel

function control(c) {
  if (c.kind === "range")
    return slider(c.key, c.label, `min="${c.min}" max="${c.max}" step="${c.step}"`);
  if (c.kind === "tick") return tick(c.key, c.label);
  if (c.kind === "play") return `<button type="button" ${attributes(c.key, c.label)}></button>`;
  return select(c.key, c.label, c.options);
}

const controlOf = (s, key) => s.controls.find((c) => c.key === key);
const controls = (s) => bar(...s.controls.map(control));

function shown(key, s) {
  const c = controlOf(s, key);
  const value = s.values[key];
  if (c.kind === "play")
    return {
      value: value ? "❚❚ pause" : "▶ play",
      label: value ? `pause: ${c.label}` : `play: ${c.label}`,
    };
  return { value, max: c.kind === "range" ? c.max : undefined };
}

function changes(key, s) {
  const c = controlOf(s, key);
  if (!c) return undefined;
  const read = (input) => {
    if (c.kind === "tick") return input.checked;
    if (c.kind === "play") return !s.values[key];
    return c.kind === "range" ? Number(input.value) : input.value;
  };
  return (input) => ({ values: { ...s.values, [key]: read(input) } });
}

function answer(s) {
  if (s.error) throw new Error(s.error);
  return s.content;
}

// While a player runs, the next step follows when the picture of the last one has come.
function play(root, s) {
  const c = s.controls.find((one) => one.kind === "play");
  if (!c) return;
  clearTimeout(root.next);
  const of = root.querySelector(`[data-key="${c.of}"]`);
  if (s.values[c.key])
    root.next = setTimeout(() => {
      if (!root.isConnected) return;
      if (Number(of.value) >= Number(of.max))
        return root.querySelector(`[data-key="${c.key}"]`).click();
      of.stepUp();
      of.dispatchEvent(new Event("input", { bubbles: true }));
    }, REST);
}

function draw(root, s, content) {
  const picture = root.querySelector(".picture");
  root.querySelector("details").hidden = true;
  if (root.drawn !== s.drawn) {
    picture.innerHTML = content;
    root.drawn = s.drawn;
    play(root, s);
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
