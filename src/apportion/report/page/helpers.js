// Small things that every part of the page uses.

let data = null; // what the page is about
const redraws = []; // called when the colours change

// An element. Texts become text nodes, so no name from a run is ever markup.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 5e-4)) return value.toExponential(2).replace("-", "−");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
}

const whole = (value) => (known(value) ? value.toLocaleString("en") : "–");

function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

const count = (amount, word) => `${whole(amount)} ${word}${amount === 1 ? "" : "s"}`;

const shorten = (text, letters) => (text.length > letters ? text.slice(0, letters - 1) + "…" : text);

// Plotly reads a little HTML in its texts: a name must not be able to use it.
const plotText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const list = (name) => read(name).split(",").map((each) => each.trim());
  const heat = list("heat");
  return {
    ink: read("ink"), muted: read("muted"), rule: read("rule"), surface: read("surface"), accent: read("accent"),
    reward: read("reward"), bad: read("bad"), truth: read("line-true"), sans: read("sans"), series: list("series"),
    heat: heat.map((colour, i) => [i / (heat.length - 1), colour]),
  };
}

function translucent(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

const runColour = (run, palette) => palette.series[data.runs.indexOf(run) % palette.series.length];

const precise = () => window.matchMedia("(pointer: fine)").matches; // a mouse: dragging may zoom

function plot(holder, traces, layout, label) {
  const c = colours();
  const axis = (given = {}) => ({
    gridcolor: c.rule, zerolinecolor: c.rule, linecolor: c.rule, tickcolor: c.rule, automargin: true,
    fixedrange: !precise(), ...given,
  });
  const full = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: precise() ? "zoom" : false,
    font: { family: c.sans, size: 12.5, color: c.ink }, margin: { l: 48, r: 12, t: 12, b: 40 },
    hoverlabel: { bgcolor: c.surface, bordercolor: c.rule, font: { family: c.sans, size: 12.5, color: c.ink } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    ...layout,
  };
  for (const name of Object.keys(full)) if (/^[xy]axis\d*$/.test(name)) full[name] = axis(full[name]);
  if (label) {
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", label);
  }
  return Plotly.react(holder, traces, full, { displayModeBar: false, responsive: true, doubleClick: "reset" });
}

// A row of buttons of which one is chosen; arrow keys move the choice.
function choice(label, options, chosen, onChange, role = "radio") {
  const state = role === "tab" ? "aria-selected" : "aria-checked";
  const row = el("div", { class: "choice", role: role === "tab" ? "tablist" : "radiogroup", "aria-label": label });
  const set = (value, tell = true) => {
    for (const button of row.children) {
      const on = button.dataset.value === value;
      button.setAttribute(state, String(on));
      button.tabIndex = on ? 0 : -1;
    }
    if (tell) onChange(value);
  };
  for (const [value, text] of options) {
    row.append(el("button", { type: "button", role, "data-value": value, onclick: () => set(value) }, text));
  }
  row.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const buttons = [...row.children];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    set(next.dataset.value);
  });
  set(chosen, false);
  return row;
}

// A labelled list to choose from; null when there is nothing to choose.
function pick(label, options, onChange) {
  const select = el("select", { onchange: () => onChange(select.value) });
  fill(select, options);
  return { node: el("label", {}, label, select), select };
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, shorten(String(text), 60))));
  if (chosen !== undefined && options.some(([value]) => String(value) === String(chosen))) select.value = chosen;
  select.disabled = options.length < 2;
}

function table(headings, rows, caption) {
  const cell = (content, heading) =>
    el("td", { class: heading.startsWith("#") ? "num" : "name" }, ...(Array.isArray(content) ? content : [content]));
  return el("table", { "aria-label": caption },
    el("thead", {}, el("tr", {}, ...headings.map((heading) =>
      el("th", { scope: "col", class: heading.startsWith("#") ? "num" : null }, heading.replace(/^#/, ""))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((content, i) => cell(content, headings[i]))))));
}

const tip = {
  show(text, x, y) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    box.style.left = `${Math.max(8, Math.min(x + 14, window.innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${y + 18 + box.offsetHeight > window.innerHeight ? y - box.offsetHeight - 10 : y + 18}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

function section(id, title, note) {
  const place = document.getElementById(id);
  place.append(el("h2", { id: `${id}-title` }, title), el("p", { class: "note" }, note));
  return place;
}

const dimensionNames = (run) => [...run.observation_names, ...run.action_names];
