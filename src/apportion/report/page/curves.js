// Learning curves: all runs over one another, a plot for each environment.

const MAIN_METRICS = ["return", "success", "reward_correlation", "return_error"];

function drawCurves() {
  const place = section("learning", "Learning curves",
    "Each line is a statistic over seeds, its band the 95% bootstrap interval. IQM: the mean of the middle half of the seeds.");
  const titles = new Map(data.runs.flatMap((run) => run.curves.metrics.map((metric) => [metric.name, metric.title])));
  if (titles.size === 0) {
    place.append(el("p", { class: "card" }, "No evaluation yet: there is nothing to draw."));
    return;
  }
  const more = [...titles].filter(([name]) => !MAIN_METRICS.includes(name));
  const view = { statistic: "iqm", lanes: false, more: more.length ? more[0][0] : null };
  const panels = el("div", { class: "grid" });
  const redraw = () => drawPanels(panels, titles, view);
  const lanes = el("input", { type: "checkbox", id: "curve-lanes", onchange: () => { view.lanes = lanes.checked; redraw(); } });
  const extra = more.length
    ? pick("Also show", more, (name) => { view.more = name; redraw(); }).node : null;
  place.append(el("div", { class: "controls" },
    choice("Statistic over seeds", [["iqm", "IQM"], ["mean", "Mean"]], "iqm", (value) => { view.statistic = value; redraw(); }),
    el("label", {}, lanes, "single seeds"), extra), panels);
  redraws.push(redraw);
  redraw();
}

function drawPanels(panels, titles, view) {
  const names = [...MAIN_METRICS.filter((name) => titles.has(name)), ...(view.more ? [view.more] : [])];
  const environments = [...new Set(data.runs.map((run) => run.env))];
  const wanted = names.flatMap((name) => environments.map((env) => ({ name, env, id: `${name} ${env}` })));
  const rows = [wanted.filter(({ name }) => name === "return"), wanted.filter(({ name }) => name !== "return")];
  if (panels.dataset.shown !== JSON.stringify(wanted)) {
    panels.dataset.shown = JSON.stringify(wanted);
    panels.replaceChildren(...rows.filter((row) => row.length).map((row, i) =>
      el("div", { class: row.length > 1 ? (row.length % 3 === 0 ? "grid three" : "grid two") : "grid" }, ...row.map(({ name, env, id }) =>
        el("div", { class: "card" }, el("h3", {}, titles.get(name) + (environments.length > 1 ? ` · ${env}` : "")),
          el("div", { class: "plot curve", "data-id": id, style: `height:${i === 0 ? 340 : 250}px` }))))));
  }
  for (const holder of panels.querySelectorAll(".curve")) {
    const { name, env } = wanted.find(({ id }) => id === holder.dataset.id);
    drawCurve(holder, name, titles.get(name), data.runs.filter((run) => run.env === env), view);
  }
}

function drawCurve(holder, name, title, runs, view) {
  const c = colours();
  const traces = runs.flatMap((run) => {
    const metric = run.curves.metrics.find((each) => each.name === name);
    return metric ? curveTraces(run, metric, view, runColour(run, c)) : [];
  });
  plot(holder, traces, {
    hovermode: "x unified", hoverdistance: -1, showlegend: runs.length > 1,
    margin: { l: 52, r: 12, t: runs.length > 1 ? 30 : 8, b: 40 },
    xaxis: { title: { text: "environment steps", font: { size: 12 } }, tickformat: "~s", hoverformat: ",d", rangemode: "tozero" },
    yaxis: { tickformat: "~g" },
    annotations: traces.some(({ y }) => y.some(known)) ? [] : [nothing(c)],
  }, `${title} against environment steps for ${runs.map((run) => run.label).join(", ")}`);
}

const nothing = (c) => ({ text: "no numbers", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { color: c.muted, size: 14 } });

function curveTraces(run, metric, view, colour) {
  const steps = run.curves.steps;
  const [centre, low, high] = ["centre", "low", "high"].map((part) => decode(metric[view.statistic][part]).values);
  const banded = steps.map((_, i) => i).filter((i) => known(low[i]) && known(high[i]));
  const label = plotText(shorten(run.label, 40));
  const group = { legendgroup: run.label, hoverinfo: "skip", showlegend: false, mode: "lines" };
  const traces = [];
  if (view.lanes) traces.push(...laneTraces(run, metric, translucent(colour, 0.45), group));
  if (banded.length > 1) {
    const edge = (values) => ({ ...group, x: banded.map((i) => steps[i]), y: banded.map((i) => values[i]), line: { width: 0 } });
    traces.push(edge(low), { ...edge(high), fill: "tonexty", fillcolor: translucent(colour, 0.16) });
  }
  const range = (i) => (known(low[i]) ? `  [${number(low[i])}, ${number(high[i])}]` : "");
  traces.push({
    x: steps, y: [...centre].map((value) => (known(value) ? value : null)), name: label, legendgroup: run.label,
    mode: steps.length <= 30 ? "lines+markers" : "lines", line: { color: colour, width: 2.2 }, marker: { size: 5, color: colour },
    customdata: steps.map((_, i) => (data.runs.length > 1 ? `${label}: ` : "") + number(centre[i]) + range(i)),
    hovertemplate: "%{customdata}<extra></extra>",
    error_y: banded.length === 1 ? {
      type: "data", symmetric: false, array: steps.map((_, i) => high[i] - centre[i]),
      arrayminus: steps.map((_, i) => centre[i] - low[i]), color: colour, thickness: 1.2,
    } : undefined,
  });
  return traces;
}

function laneTraces(run, metric, colour, group) {
  const { shape: [moments, lanes], values } = decode(metric.lanes);
  return Array.from({ length: lanes }, (_, lane) => ({
    ...group, x: run.curves.steps, line: { color: colour, width: 1 },
    y: Array.from({ length: moments }, (_, k) => (known(values[k * lanes + lane]) ? values[k * lanes + lane] : null)),
  }));
}
