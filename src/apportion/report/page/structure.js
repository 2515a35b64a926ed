// The causal structure over training: one moment at a time, as heat maps or drawn.

function drawStructure() {
  const place = section("structure", "Causal structure",
    "Which dimension drives which: rows are sources, columns what they drive. An edge is kept at P ≥ 0.5. Move the slider through training.");
  const runs = data.runs.filter((run) => run.structure);
  if (runs.length === 0) {
    const evaluated = data.runs.some((run) => run.curves.steps.length);
    place.append(el("p", { class: "card" }, evaluated
      ? "No run here has a causal graph: its method learns none." : "No evaluation yet: there is no graph to draw."));
    return;
  }
  const view = { run: runs[0], moment: 0, values: "mean", tab: "maps", all: false, compare: false, timer: null };
  const parts = structureParts(place, runs, view);
  const redraw = () => showStructure(parts, view);
  parts.redraw = redraw;
  useRun(parts, view, runs[0]);
  redraws.push(redraw);
}

function structureParts(place, runs, view) {
  const parts = {};
  const again = () => parts.redraw();
  parts.slider = el("input", { type: "range", id: "moment", min: 0, step: 1, "aria-label": "Moment of training", oninput: () => { view.moment = Number(parts.slider.value); again(); } });
  parts.step = el("output", { for: "moment", id: "moment-step" });
  parts.play = el("button", { type: "button", "aria-label": "Play through training", onclick: () => toggleTime(parts, view) }, "▶ Play");
  parts.values = pick("Show", [["mean", "mean"]], (value) => { view.values = value; again(); });
  parts.all = el("input", { type: "checkbox", onchange: () => { view.all = parts.all.checked; again(); } });
  parts.allLabel = el("label", {}, parts.all, "all dimensions");
  parts.compare = el("input", { type: "checkbox", onchange: () => { view.compare = parts.compare.checked; again(); } });
  parts.compareLabel = el("label", {}, parts.compare, "mark against the true graph");
  const options = runs.map((run) => [String(data.runs.indexOf(run)), run.label]);
  const chooser = runs.length > 1 ? pick("Run", options, (index) => useRun(parts, view, data.runs[Number(index)])).node : null;
  parts.tabs = choice("Picture", [["maps", "Heat maps"], ["drawn", "Drawn graph"]], "maps", (tab) => { view.tab = tab; again(); }, "tab");
  parts.map = el("div", { class: "plot matrix", id: "map" });
  parts.truth = el("div", { class: "plot matrix", id: "true-map" });
  parts.truthCard = el("div", { class: "card" }, el("h3", {}, "True graph"), parts.truth);
  parts.mapTitle = el("h3", {});
  parts.maps = el("div", { class: "grid two", role: "tabpanel", "aria-label": "Heat maps" }, el("div", { class: "card" }, parts.mapTitle, parts.map), parts.truthCard);
  parts.graph = el("div", { class: "graph" });
  parts.drawn = el("div", { class: "card", role: "tabpanel", "aria-label": "Drawn graph" }, parts.graph);
  parts.note = el("p", { class: "note", "aria-live": "polite" });
  parts.edges = el("div", { class: "card", style: "margin-top:1rem" });
  place.append(
    el("div", { class: "controls" }, chooser, parts.tabs, parts.values.node, parts.allLabel, parts.compareLabel),
    el("div", { class: "slider-row", style: "margin-bottom:1rem" }, parts.play, parts.slider, parts.step),
    parts.note, parts.maps, parts.drawn, legend(), parts.edges);
  return parts;
}

const legend = () => el("div", { class: "legend" },
  el("span", {}, el("b", {}, "◆ / filled dot"), " in the compact representation: the policy sees it"),
  data.runs.some((run) => run.certificates)
    ? el("span", {}, el("b", {}, "? / dotted line"), " undecided: kept because the data cannot tell; full lines were found") : null,
  el("span", {}, el("b", {}, "†"), " never changes in the stored episodes"));

function useRun(parts, view, run) {
  stopTime(parts, view);
  const { structure } = run;
  Object.assign(view, { run, moment: structure.steps.length - 1, values: "mean", all: false });
  Object.assign(parts.slider, { max: structure.steps.length - 1, value: view.moment, disabled: structure.steps.length < 2 });
  parts.slider.value = view.moment;
  parts.play.disabled = structure.steps.length < 2;
  parts.all.checked = false;
  const single = Object.values(structure.blocks)[0].single;
  const lanes = single ? run.seeds.slice(0, structure.lanes).map((seed, lane) => [`lane${lane}`, `seed ${seed}`]) : [];
  fill(parts.values.select, structure.lanes > 1
    ? [["mean", "mean probability over seeds"], ["kept", "share of seeds that keep the edge"], ...lanes]
    : [["mean", "probability"]]);
  const size = run.observation_names.length + run.action_names.length;
  parts.allLabel.hidden = size <= MANY;
  parts.compareLabel.hidden = !structure.truth;
  parts.truthCard.hidden = !structure.truth;
  parts.redraw();
}

function showStructure(parts, view) {
  const { run } = view;
  const graph = graphAt(run, view.moment, view.values);
  const size = graph.S + graph.A;
  const everything = Array.from({ length: size }, (_, i) => i);
  const matter = size > MANY ? thoseThatMatter(graph) : everything;
  const dims = view.all && view.tab === "maps" ? everything : matter;
  const step = run.structure.steps[view.moment];
  parts.step.textContent = `step ${whole(step)}`;
  parts.slider.setAttribute("aria-valuetext", `step ${whole(step)}`);
  parts.note.textContent = [
    ...run.certified,
    dims.length < size ? `Showing the ${dims.length} of ${size} dimensions nearest to the reward.` : "",
    run.structure.complete ? "" : "Edges between observations were left out to keep the page small: make a report of this run alone to see them.",
  ].join(" ").trim();
  parts.maps.hidden = view.tab !== "maps";
  parts.drawn.hidden = view.tab !== "drawn";
  parts.maps.style.display = parts.maps.hidden ? "none" : "";
  parts.compareLabel.style.display = run.structure.truth && view.tab === "drawn" ? "" : "none";
  parts.allLabel.style.display = size > MANY && view.tab === "maps" ? "" : "none";
  if (view.tab === "maps") {
    parts.mapTitle.textContent = run.structure.truth ? "Learned graph" : `${run.label}: learned graph`;
    drawMatrices(parts.map, run, graph, dims, graph.value, `Learned edges of ${run.label} at step ${step}`);
    if (run.structure.truth) drawMatrices(parts.truth, run, graph, dims, (i, j) => Number(graph.truth(i, j)), `True edges of ${run.env}`);
  } else {
    drawGraph(parts.graph, run, graph, dims, view.compare && graph.truthKnown);
  }
  showEdges(parts.edges, run, graph);
}

// The same in words: what feeds the reward, for those who do not see pictures, and for telephones.
function showEdges(holder, run, graph) {
  const names = dimensionNames(run);
  const rows = names.map((name, i) => ({ name, i, p: graph.value(i, REWARD) })).filter(({ p }) => known(p));
  rows.sort((a, b) => b.p - a.p);
  const shown = rows.slice(0, 12);
  const headings = ["dimension", "", "#P", "#seeds that keep it", "policy"];
  if (graph.truthKnown) headings.push("truth");
  holder.replaceChildren(el("h3", {}, "Edges to the reward"), el("div", { class: "scroll" }, table(headings, shown.map(({ i, p }) => [
    [names[i], ...(run.dead.includes(i) ? [" ", el("span", { class: "badge" }, "never changes")] : [])],
    graph.undecided(i, REWARD) ? el("span", { class: "badge" }, "undecided") : bar(p), number(graph.probability(i, REWARD)), `${graph.kept(i, REWARD)} of ${graph.lanes}`,
    i >= graph.S ? el("span", { class: "badge" }, "action") : graph.mask(i) ? el("span", { class: "badge on" }, "sees it") : "",
    ...(graph.truthKnown ? [graph.truth(i, REWARD) ? "true edge" : ""] : []),
  ]), "Edges to the reward")));
  if (rows.length === 0) holder.append(el("p", { class: "note" }, "No seed has numbers here: they diverged."));
  if (rows.length > shown.length) holder.append(el("p", { class: "note" }, `${count(rows.length - shown.length, "less likely one")} in the heat map.`));
}

function bar(share) {
  const meter = el("span", { class: "meter" }, el("i"));
  meter.firstChild.style.cssText = `left:0;width:${Math.round(100 * share)}%`;
  return meter;
}

function toggleTime(parts, view) {
  if (view.timer) { stopTime(parts, view); return; }
  const last = view.run.structure.steps.length - 1;
  if (view.moment === last) view.moment = -1;
  parts.play.textContent = "❚❚ Stop";
  const tick = () => {
    view.moment += 1;
    parts.slider.value = view.moment;
    parts.redraw();
    if (view.moment >= last) stopTime(parts, view);
  };
  view.timer = setInterval(tick, 600);
  tick();
}

function stopTime(parts, view) {
  clearInterval(view.timer);
  view.timer = null;
  parts.play.textContent = "▶ Play";
}
