// A saved page: the explorer runs on a model that lives here.

document.body.dataset.jpThemeLight = !matchMedia("(prefers-color-scheme: dark)").matches;
const text = (id) => document.getElementById(id).textContent;
const state = JSON.parse(text("state"));
const heard = {};
const model = {
  get: (key) => state[key],
  set: (key, value) => {
    state[key] = value;
    (heard[`change:${key}`] ?? []).forEach((tell) => tell());
  },
  on: (event, tell) => {
    heard[event] = [...(heard[event] ?? []), tell];
  },
  off: () => {},
  save_changes: () => {},
};
const { default: widget } = await import(
  URL.createObjectURL(new Blob([text("esm")], { type: "text/javascript" }))
);
widget.render({ model, el: document.getElementById("app") });
