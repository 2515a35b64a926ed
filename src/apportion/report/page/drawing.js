// The graph drawn: on the left what is, on the right what comes of it. Filled dots are what the policy sees.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 27;

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawGraph(holder, run, graph, dims, compare) {
  const names = dimensionNames(run);
  const states = dims.filter((i) => i < graph.S), actions = dims.filter((i) => i >= graph.S);
  const width = Math.max(300, Math.min(760, holder.clientWidth || 760));
  const top = 84, left = Math.round(width * 0.34), right = Math.round(width * 0.66), rewardAt = 24;
  const letters = Math.floor((left - 12) / 7.2);
  const height = top + ROW * (states.length + actions.length) + (actions.length ? 32 : 0) + 4;
  const at = new Map();
  states.forEach((i, k) => at.set(i, top + k * ROW));
  actions.forEach((i, k) => at.set(i, top + (states.length + k) * ROW + 32));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Causal graph" });
  picture.append(head(left - 6, top - 22, "end", "observed now"), head(right + 16, top - 22, "start", graph.has("state_to_state") ? "observed next" : ""));
  if (actions.length) picture.append(head(left - 6, at.get(actions[0]) - 20, "end", "actions"));
  const edges = [];
  for (const source of dims) {
    for (const target of [REWARD, ...(graph.has("state_to_state") ? states : [])]) {
      const edge = drawEdge(graph, source, target, compare, [left + 10, at.get(source)], [right, target === REWARD ? rewardAt : at.get(target)]);
      if (edge) edges.push({ source, target, edge });
    }
  }
  picture.append(...edges.map(({ edge }) => edge));
  const lit = (test) => edges.filter(test).map(({ edge }) => edge);
  for (const i of dims) {
    const own = edges.filter(({ source }) => source === i);
    picture.append(node({
      x: left + 10, y: at.get(i), text: names[i], side: -1, letters, policy: graph.mask(i), idle: own.length === 0, dead: run.dead.includes(i),
      label: `${names[i]}${graph.mask(i) ? ", seen by the policy" : ""}${run.dead.includes(i) ? ", never changes" : ""}: drives ${own.map(({ target }) => (target === REWARD ? "the reward" : `next ${names[target]}`)).join(", ") || "nothing"}`,
      edges: lit(({ source }) => source === i), picture,
    }));
  }
  for (const i of graph.has("state_to_state") ? states : []) {
    const causes = edges.filter(({ target }) => target === i);
    picture.append(node({
      x: right, y: at.get(i), text: names[i], side: 1, letters, policy: false, idle: causes.length === 0, dead: run.dead.includes(i),
      label: `next ${names[i]}: driven by ${causes.map(({ source }) => names[source]).join(", ") || "nothing"}`,
      edges: lit(({ target }) => target === i), picture,
    }));
  }
  const causes = edges.filter(({ target }) => target === REWARD);
  picture.append(node({
    x: right, y: rewardAt, text: "reward", side: 1, letters, reward: true, edges: lit(({ target }) => target === REWARD), picture,
    label: `reward: driven by ${causes.map(({ source }) => names[source]).join(", ") || "nothing"}`,
  }));
  holder.replaceChildren(el("div", { class: "scroll" }, picture));
}

const head = (x, y, anchor, text) => svg("text", { class: "head", x, y, "text-anchor": anchor }, text);

// A line from source to target; null for an edge that is neither found nor, when comparing, true.
function drawEdge(graph, source, target, compare, [x1, y1], [x2, y2]) {
  const on = graph.on(source, target), truth = compare && graph.truth(source, target);
  if (!on && !truth) return null;
  const kind = [target === REWARD ? "reward" : "", compare && on && !truth ? "extra" : "", on ? "" : "missing", on && graph.undecided(source, target) ? "undecided" : ""].join(" ").trim();
  const bend = (x2 - x1) * 0.45;
  const faint = target === REWARD ? 0.9 : source === target ? 0.35 : 0.6;
  return svg("path", {
    class: kind, d: `M${x1 + 6},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2 - 6},${y2}`,
    style: `opacity:${(faint * (on ? graph.value(source, target) : 1)).toFixed(2)}`,
  });
}

function node({ x, y, text, side, letters, policy, idle, dead, reward, label, edges, picture }) {
  const kind = ["node", policy ? "policy" : "", idle ? "idle" : ""].join(" ").trim();
  const shape = reward
    ? svg("rect", { x: x - 6, y: y - 6, width: 12, height: 12, transform: `rotate(45 ${x} ${y})` })
    : svg("circle", { cx: x, cy: y, r: 5.5 });
  const words = svg("text", { x: x + side * 16, y: y + 4.5, "text-anchor": side < 0 ? "end" : "start", style: reward ? "font-weight:650" : null },
    shorten(text, letters) + (dead ? " †" : ""));
  const group = svg("g", { class: kind, tabindex: "0", role: "img", "aria-label": label }, shape, words);
  const light = (on) => {
    picture.classList.toggle("focus", on);
    for (const edge of edges) edge.classList.toggle("lit", on);
  };
  group.addEventListener("mouseenter", () => light(true));
  group.addEventListener("mouseleave", () => light(false));
  group.addEventListener("focus", () => light(true));
  group.addEventListener("blur", () => light(false));
  return group;
}
