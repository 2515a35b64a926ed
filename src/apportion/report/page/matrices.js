// A graph at one moment of training, and its four blocks as heat maps: rows drive columns.

const REWARD = -1; // as a target; other targets are numbers of observations
const MANY = 30; // with more dimensions than this the page starts with those that matter
const SHOWN = 40; // at most so many then

// Answers about the edges of one run at one moment. Sources are numbers: observations first, then actions.
function graphAt(run, moment, view) {
  const { structure } = run;
  const S = run.observation_names.length, A = run.action_names.length;
  const place = (source, target) => (target === REWARD
    ? (source < S ? ["state_to_reward", source, S] : ["action_to_reward", source - S, A])
    : (source < S ? ["state_to_state", source * S + target, S * S] : ["action_to_state", (source - S) * S + target, A * S]));
  const read = (part, block, index, size) => {
    const packed = structure.blocks[block] && decode(structure.blocks[block][part]);
    return packed ? packed.values[moment * size + index] : NaN;
  };
  const lane = view.startsWith("lane") ? Number(view.slice(4)) : null;
  const ofLane = (block, index, size) => {
    const packed = structure.blocks[block] && decode(structure.blocks[block].single);
    return packed ? packed.values[(moment * structure.lanes + lane) * size + index] : NaN;
  };
  const value = (block, index, size) => {
    if (lane !== null) return ofLane(block, index, size);
    return view === "kept" ? read("kept", block, index, size) / structure.lanes : read("probability", block, index, size);
  };
  return {
    S, A, lanes: structure.lanes, truthKnown: Boolean(structure.truth),
    has: (block) => Boolean(structure.blocks[block]),
    value: (source, target) => value(...place(source, target)),
    probability: (source, target) => read("probability", ...place(source, target)),
    kept: (source, target) => read("kept", ...place(source, target)),
    // Kept by those seeds that keep it because the data cannot tell, or mostly so.
    undecided(source, target) {
      if (lane !== null) return Boolean(run.certificates) && value(...place(source, target)) === 0.5;
      const open = read("undecided", ...place(source, target));
      return open > 0 && 2 * open >= read("kept", ...place(source, target));
    },
    open: (source, target) => read("undecided", ...place(source, target)) || 0,
    on: (source, target) => value(...place(source, target)) >= 0.5,
    truth(source, target) {
      const [block, index] = place(source, target);
      return Boolean(structure.truth && structure.truth[block] && decode(structure.truth[block]).values[index] >= 0.5);
    },
    mask: (source) => source < S && value("policy_mask", source, S) >= 0.5,
  };
}

// Dimensions from which edges that are on lead to the reward, directly or through others; the most likely first.
function thoseThatMatter(graph) {
  const everything = Array.from({ length: graph.S + graph.A }, (_, i) => i);
  const likely = (a, b) => (graph.value(b, REWARD) || 0) - (graph.value(a, REWARD) || 0);
  let found = everything.filter((i) => graph.on(i, REWARD)).sort(likely);
  const seen = new Set(found);
  for (let front = found; front.length && found.length < SHOWN && graph.has("state_to_state");) {
    const targets = front.filter((i) => i < graph.S);
    front = everything.filter((i) => !seen.has(i) && targets.some((target) => graph.on(i, target))).sort(likely);
    front.forEach((i) => seen.add(i));
    found = found.concat(front);
  }
  if (found.length === 0) found = everything.sort(likely).slice(0, 20);
  return found.slice(0, SHOWN).sort((a, b) => a - b);
}

function edgeText(run, graph, source, target) {
  const names = dimensionNames(run);
  const parts = [`${names[source]} → ${target === REWARD ? "reward" : `next ${names[target]}`}`];
  parts.push(`P = ${number(graph.probability(source, target))}`);
  if (graph.lanes > 1) parts.push(`kept by ${graph.kept(source, target)} of ${graph.lanes} seeds`);
  if (graph.open(source, target)) parts.push(graph.lanes > 1 ? `undecided in ${graph.open(source, target)}` : "undecided: the data cannot tell");
  if (graph.truthKnown) parts.push(graph.truth(source, target) ? "a true edge" : "no true edge");
  if (run.dead.includes(source)) parts.push("the source never changes");
  return parts.join(" · ");
}

function tickLabel(run, graph, dimension, source) {
  const mark = run.dead.includes(dimension) ? " †" : source && graph.mask(dimension) ? " ◆" : "";
  return plotText(shorten(dimensionNames(run)[dimension], 24)) + mark;
}

// The heat maps of some dimensions. `value(source, target)` is what is drawn.
function drawMatrices(holder, run, graph, dims, value, label) {
  const c = colours();
  const states = dims.filter((i) => i < graph.S), actions = dims.filter((i) => i >= graph.S);
  const dynamics = graph.has("state_to_state");
  const targets = dynamics ? states : [];
  const rows = [states, actions].filter((each) => each.length), columns = [targets, [REWARD]].filter((each) => each.length);
  const width = holder.clientWidth || 600;
  const cell = Math.max(2, Math.min(30, (width - 150) / (targets.length + 2)));
  const gap = cell >= 7 ? 1 : 0;
  const xs = domains(columns.map((each) => each.length * cell), Math.max(10, cell * 0.4), 18);
  const ys = domains([...rows].reverse().map((each) => each.length * cell), Math.max(8, cell * 0.4), 10);
  const layout = { margin: { l: 10, r: 10, t: 10, b: 10 }, height: Math.max(140, ys.total + 130), hovermode: "closest", uirevision: dims.join() };
  layout.width = Math.min(width, xs.total + 200);
  // Plotly makes an element for every text, also for an empty one: a hundred thousand of them take a minute.
  const marks = (sources, goals) => (value === graph.value && cell >= 10
    ? { text: sources.map((i) => goals.map((j) => (graph.undecided(i, j) ? "?" : ""))), texttemplate: "%{text}" } : {});
  const traces = [];
  rows.forEach((sources, r) => columns.forEach((goals, k) => {
    const id = traces.length + 1, suffix = id === 1 ? "" : id;
    layout[`xaxis${suffix}`] = matrixAxis(goals, k, xs.parts[k], r === 0, "top", (i) => (i === REWARD ? "<b>reward</b>" : tickLabel(run, graph, i, false)), cell, c);
    layout[`yaxis${suffix}`] = { ...matrixAxis(sources, r, ys.parts[rows.length - 1 - r], k === 0, "left", (i) => tickLabel(run, graph, i, true), cell, c), range: [sources.length - 0.5, -0.5] };
    layout[`xaxis${suffix}`].anchor = `y${suffix}`;
    layout[`yaxis${suffix}`].anchor = `x${suffix}`;
    traces.push({
      type: "heatmap", xaxis: `x${suffix}`, yaxis: `y${suffix}`, z: sources.map((i) => goals.map((j) => value(i, j))),
      zmin: 0, zmax: 1, colorscale: c.heat, ...marks(sources, goals), showscale: false, xgap: gap, ygap: gap, hoverinfo: "none", meta: { sources, goals },
    });
  }));
  plot(holder, traces, layout, label);
  if (!holder.dataset.wired) {
    holder.dataset.wired = "yes";
    holder.on("plotly_hover", ({ points: [point], event }) => {
      const { sources, goals } = point.data.meta;
      tip.show(holder.tell(sources[point.y], goals[point.x]), event.clientX, event.clientY);
    });
    holder.on("plotly_unhover", tip.hide);
    holder.addEventListener("mouseleave", tip.hide);
  }
  holder.tell = (source, target) => edgeText(run, graph, source, target);
}

function matrixAxis(dims, order, domain, labelled, side, text, cell, c) {
  const every = Math.max(1, Math.ceil(13 / cell)); // so that names do not run into each other
  const places = dims.map((_, i) => i).filter((i) => i % every === 0);
  return {
    domain, side, range: [-0.5, dims.length - 0.5], showgrid: false, zeroline: false, ticks: "", showticklabels: labelled, tickmode: "array",
    tickvals: places, ticktext: places.map((i) => text(dims[i])), tickangle: side === "top" ? -55 : 0,
    tickfont: { size: 11.5, color: c.ink }, fixedrange: dims.length < 60 || !precise(), automargin: labelled,
  };
}

// Shares of one axis for blocks of these sizes in pixels, with a gap; none smaller than `least`.
function domains(sizes, gap, least) {
  const wide = sizes.map((size) => Math.max(size, least));
  const total = wide.reduce((a, b) => a + b, 0) + gap * (wide.length - 1);
  const parts = [];
  let from = 0;
  for (const size of wide) {
    parts.push([from / total, Math.min(1, (from + size) / total)]);
    from += size + gap;
  }
  return { total, parts };
}
