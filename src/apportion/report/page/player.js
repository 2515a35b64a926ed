// The episode player: true against redistributed reward along time, and what was seen and done at each step.

function drawPlayer() {
  const place = section("episodes", "Episodes",
    `${data.runs.some((run) => run.step_rewards) ? "True" : "Paid"} against redistributed reward along an evaluation episode. Move the cursor with the slider, by a click into the curve, or with the arrow keys; space plays.`);
  const runs = data.runs.filter((run) => run.player);
  if (runs.length === 0) {
    place.append(el("p", { class: "card" }, "No evaluation episode is stored yet."));
    return;
  }
  const view = { run: runs[0], episode: null, t: 0, sums: false, timer: null };
  const parts = playerParts(place, runs, view);
  useEpisodesOf(parts, view, runs[0]);
  redraws.push(() => showEpisode(parts, view));
}

function playerParts(place, runs, view) {
  const parts = {};
  const options = runs.map((run) => [String(data.runs.indexOf(run)), run.label]);
  const chooser = runs.length > 1 ? pick("Run", options, (index) => useEpisodesOf(parts, view, data.runs[Number(index)])).node : null;
  const changed = () => chooseEpisode(parts, view);
  parts.lane = pick("Seed", [], changed);
  parts.step = pick("After step", [], changed);
  parts.number = pick("Episode", [], changed);
  const kind = choice("Rewards", [["step", "Per step"], ["sum", "Summed up"]], "step", (value) => { view.sums = value === "sum"; showEpisode(parts, view); });
  parts.plot = el("div", { class: "plot", id: "episode-plot", style: "height:300px" });
  parts.slider = el("input", { type: "range", id: "cursor", min: 0, step: 1, "aria-label": "Step of the episode", oninput: () => moveTo(parts, view, Number(parts.slider.value)) });
  parts.at = el("output", { for: "cursor", id: "cursor-step" });
  parts.play = el("button", { type: "button", id: "play", onclick: () => togglePlay(parts, view) }, "▶ Play");
  const by = (amount, text, label) => el("button", { type: "button", "aria-label": label, onclick: () => moveTo(parts, view, view.t + amount) }, text);
  parts.facts = el("dl", { class: "facts" });
  parts.frame = el("img", { alt: "" });
  parts.frameCard = el("div", { class: "card frame" }, parts.frame);
  parts.values = el("div", { class: "tall" });
  parts.valuesTitle = el("h3", {});
  parts.valuesNote = el("p", { class: "note" });
  const box = el("div", { class: "player", id: "player", tabindex: "0", role: "group", "aria-label": "Episode player: arrow keys step, space plays" },
    el("div", { class: "card" }, parts.plot, el("div", { class: "slider-row" }, parts.slider, parts.at),
        el("div", { class: "controls", style: "margin-bottom:0" }, parts.play, by(-1, "‹", "One step back"), by(1, "›", "One step on")), parts.facts),
    el("div", { class: "grid" }, parts.frameCard, el("div", { class: "card" }, parts.valuesTitle, parts.valuesNote, parts.values)));
  place.append(el("div", { class: "controls" }, chooser, parts.lane.node, parts.step.node, parts.number.node, kind), box);
  document.addEventListener("keydown", (event) => playerKey(event, box, parts, view));
  return parts;
}

function playerKey(event, box, parts, view) {
  const from = event.target;
  const ours = box.contains(from) || (from === document.body && visible(box));
  if (!ours || from.closest("select, input, [role=radiogroup], [role=tablist]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const last = shownSteps(view.episode) - 1;
  const where = { ArrowRight: view.t + 1, ArrowLeft: view.t - 1, Home: 0, End: last, PageDown: view.t + 10, PageUp: view.t - 10 }[event.key];
  if (where !== undefined && (from !== document.body || event.key.startsWith("Arrow"))) {
    event.preventDefault();
    moveTo(parts, view, where);
  } else if (event.key === " " && from === box) {
    event.preventDefault();
    togglePlay(parts, view);
  }
}

function visible(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return top < window.innerHeight * 0.7 && bottom > window.innerHeight * 0.3;
}

const shownSteps = (episode) => episode.values.shape[0];

// The newest episode of the first seed, unless the user chooses another.
function useEpisodesOf(parts, view, run) {
  view.run = run;
  const lanes = [...new Set(run.player.episodes.map(({ lane }) => lane))];
  fill(parts.lane.select, lanes.map((lane) => [lane, run.seeds[lane] ?? lane]));
  parts.step.select.replaceChildren();
  chooseEpisode(parts, view);
}

function chooseEpisode(parts, view) {
  stopPlay(parts, view);
  const ofLane = view.run.player.episodes.filter(({ lane }) => lane === Number(parts.lane.select.value));
  const steps = [...new Set(ofLane.map(({ step }) => step))];
  const wanted = parts.step.select.value || steps[steps.length - 1];
  const step = steps.includes(Number(wanted)) ? Number(wanted) : steps[steps.length - 1];
  fill(parts.step.select, steps.map((each) => [each, whole(each)]), step);
  const there = ofLane.filter((each) => each.step === step);
  fill(parts.number.select, there.map(({ number: each }) => [each, each + 1]), parts.number.select.value);
  view.episode = there.find((each) => each.number === Number(parts.number.select.value));
  view.t = Math.min(view.t, shownSteps(view.episode) - 1);
  Object.assign(parts.slider, { max: shownSteps(view.episode) - 1, disabled: shownSteps(view.episode) < 2 });
  buildValues(parts, view);
  showEpisode(parts, view);
}

const rewardsOf = (episode, name) => (episode[name] ? Array.from(decode(episode[name]).values) : null);

function summed(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}

function showEpisode(parts, view) {
  const c = colours();
  const { episode, run } = view;
  const steps = Array.from({ length: shownSteps(episode) }, (_, t) => t);
  const payments = paymentTrace(episode, view, c);
  // Where the environment itself pays at the end, the marks of its payments say all that is known.
  const truth = run.step_rewards ? ["true_rewards", "true", c.truth, 1.8] : ["true_rewards", "paid", c.truth, 1.8];
  const lines = [...(run.step_rewards || !payments ? [truth] : []), ["redistributed", "redistributed", c.reward, 2.2]];
  const traces = lines.filter(([name]) => episode[name]).map(([name, title, colour, width]) => {
    const values = rewardsOf(episode, name);
    const y = view.sums ? summed(values) : values;
    return { x: steps, y, name: title, mode: steps.length === 1 ? "markers" : "lines", line: { color: colour, width }, marker: { color: colour }, customdata: y.map(number), hovertemplate: "%{customdata}" };
  });
  if (!view.sums) traces.unshift(...bandTraces(episode, steps, c));
  if (payments) traces.push(payments);
  plot(parts.plot, traces, {
    hovermode: "x unified", hoverdistance: -1, showlegend: true, margin: { l: 52, r: 12, t: 32, b: 40 },
    xaxis: { title: { text: "step of the episode", font: { size: 12 } }, hoverformat: "d", range: [-0.5, steps.length - 0.5], zeroline: false }, yaxis: { tickformat: "~g" },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    shapes: [cursorLine(view.t, c)],
  }, `${run.step_rewards ? "True" : "Paid"} and redistributed reward along the episode`);
  if (!parts.plot.dataset.wired) {
    parts.plot.dataset.wired = "yes";
    parts.plot.on("plotly_click", ({ points: [point] }) => moveTo(parts, view, Math.round(point.x)));
  }
  moveTo(parts, view, view.t);
}

// Between which bounds a step's reward lies in 90% of cases, where that is known.
function bandTraces(episode, steps, c) {
  if (!episode.redistributed_low) return [];
  const edge = (name, more) => ({ x: steps, y: rewardsOf(episode, name), mode: "lines", line: { width: 0 }, hoverinfo: "skip", ...more });
  return [edge("redistributed_low", { showlegend: false }), edge("redistributed_high", { name: "90% interval", fill: "tonexty", fillcolor: `${c.reward}33` })];
}

// Where the environment paid: its own sum is on another scale, so per step only the place is marked.
function paymentTrace(episode, view, c) {
  if (!episode.paid) return null;
  const paid = rewardsOf(episode, "paid"), ends = decode(episode.segment_end).values;
  const at = paid.map((_, t) => t).filter((t) => ends[t]);
  if (at.length === 0 || at.length === paid.length) return null;
  const total = summed(paid);
  return {
    x: at, y: view.sums ? at.map((t) => total[t]) : at.map(() => 0.04), yaxis: view.sums ? "y" : "y2", name: "paid", mode: "markers", customdata: at.map((t) => number(paid[t])),
    hovertemplate: "%{customdata} for its segment", marker: { symbol: "triangle-down", size: 10, color: c.accent },
  };
}

const cursorLine = (t, c) => ({ type: "line", x0: t, x1: t, yref: "paper", y0: 0, y1: 1, line: { color: c.ink, width: 1, dash: "dot" } });

function moveTo(parts, view, where) {
  const { episode } = view;
  const t = Math.max(0, Math.min(shownSteps(episode) - 1, where));
  view.t = t;
  parts.slider.value = t;
  parts.at.textContent = `step ${whole(t)} of ${whole(episode.length)}`;
  parts.slider.setAttribute("aria-valuetext", parts.at.textContent);
  Plotly.relayout(parts.plot, { "shapes[0].x0": t, "shapes[0].x1": t });
  showFacts(parts.facts, episode, t, view.run.step_rewards ? "true" : "paid");
  showFrame(parts, episode, t);
  parts.update(t);
}

function showFacts(holder, episode, t, kind) {
  const at = (name) => (episode[name] ? decode(episode[name]).values[t] : NaN);
  const { true_rewards: truth, redistributed: given } = episode.sums;
  const error = known(given) && truth !== 0 ? Math.abs(given - truth) / Math.abs(truth) : NaN;
  const facts = [
    [`${kind} reward`, number(at("true_rewards"))], ["redistributed", number(at("redistributed"))],
    [`${kind} return`, number(truth)], ["Σ redistributed", number(given)], ["return error", known(error) ? `${number(100 * error)} %` : "–"],
  ];
  holder.replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function showFrame(parts, episode, t) {
  const { frames } = episode;
  parts.frameCard.style.display = frames ? "" : "none";
  if (!frames) return;
  let nearest = 0;
  frames.steps.forEach((step, i) => { if (Math.abs(step - t) < Math.abs(frames.steps[nearest] - t)) nearest = i; });
  if (parts.frame.dataset.shown !== String(frames.steps[nearest]) || parts.frame.owner !== episode) {
    parts.frame.src = `data:image/jpeg;base64,${frames.images[nearest]}`;
    parts.frame.dataset.shown = frames.steps[nearest];
    parts.frame.owner = episode;
  }
  parts.frame.alt = `The environment at step ${frames.steps[nearest]}`;
}

// The table beside the curve: values, and contributions where they are known. Built once, then updated in place.
function buildValues(parts, view) {
  const { run, episode } = view;
  const names = dimensionNames(run), dims = run.player.dimensions, S = run.observation_names.length;
  const credit = decode(episode.contributions), values = decode(episode.values), advice = decode(episode.recommended);
  const explained = credit ? nearestKnown(credit) : null; // for each step, the nearest with contributions
  const widest = credit ? Math.max(1e-12, ...Array.from(credit.values, (each) => Math.abs(each) || 0)) : 1;
  const rows = dims.map((i, k) => ({ k, name: names[i], kind: i < S ? "" : "action", driver: drivesReward(run, i), low: values.low[k], span: values.scale[k] * 65534 }));
  if (credit && dims.length < names.length) rows.push({ k: dims.length, name: "all others", kind: "", rest: true });
  const live = rows.map((row) => ({ ...row, value: el("span"), mark: el("i"), share: el("span") }));
  if (credit) live.sort((a, b) => meanSize(credit, b.k) - meanSize(credit, a.k));
  const headings = credit ? ["dimension", "#value", "contribution", "#"] : ["dimension", "#value", "within its range"];
  parts.values.replaceChildren(table(headings, live.map((row) => [
    [row.name, " ", ...badges(row)], row.value, el("span", { class: "meter", "aria-hidden": "true" }, row.mark), ...(credit ? [row.share] : [])]),
  "Values at the step under the cursor"));
  parts.valuesNote.hidden = !credit;
  parts.update = (t) => {
    const from = explained ? explained[t] : t;
    parts.valuesTitle.textContent = `At step ${whole(t)}`;
    if (credit) {
      const where = from === t ? "Contributions" : `Contributions, known at step ${whole(from)},`;
      parts.valuesNote.textContent = `${where} add up to the redistributed reward minus a baseline of ${number(decode(episode.baseline).values[from])}.`;
    }
    for (const row of live) {
      updateRow(row, t, from, values, credit, widest);
      const better = advice && !row.rest ? advice.values[t * advice.shape[1] + row.k] : NaN;
      if (known(better)) row.value.textContent += ` (policy: ${number(better)})`;
    }
  };
  if (dims.length < names.length) parts.values.append(el("p", { class: "note" }, `${dims.length} of ${names.length} dimensions are kept on the page.`));
}

function nearestKnown({ values, shape: [steps, width] }) {
  const places = Array.from({ length: steps }, (_, t) => t).filter((t) => known(values[t * width]));
  let next = 0;
  return Array.from({ length: steps }, (_, t) => {
    while (next + 1 < places.length && Math.abs(places[next + 1] - t) <= Math.abs(places[next] - t)) next += 1;
    return places.length ? places[next] : t;
  });
}

function meanSize(credit, column) {
  let sum = 0;
  for (let i = column; i < credit.values.length; i += credit.shape[1]) sum += Math.abs(credit.values[i]) || 0;
  return sum;
}

function badges(row) {
  return [row.kind ? el("span", { class: "badge" }, row.kind) : "", row.driver ? el("span", { class: "badge reward", title: row.driver === "undecided" ? "may have an edge to the reward: undecided" : "has an edge to the reward" }, row.driver === "undecided" ? "→ r ?" : "→ r") : ""];
}

function updateRow(row, t, from, values, credit, widest) {
  const value = row.rest ? NaN : values.values[t * values.shape[1] + row.k];
  row.value.textContent = row.rest ? "" : number(value);
  if (!credit) {
    row.mark.className = "dot";
    row.mark.style.left = `${row.span > 0 && known(value) ? (100 * (value - row.low)) / row.span : 50}%`;
    return;
  }
  const share = credit.values[from * credit.shape[1] + row.k];
  row.share.textContent = number(share);
  const half = known(share) ? (50 * Math.abs(share)) / widest : 0;
  row.mark.className = share < 0 ? "minus" : "";
  row.mark.style.left = `${share < 0 ? 50 - half : 50}%`;
  row.mark.style.width = `${half}%`;
}

// In the newest graph, by the mean over seeds.
function drivesReward(run, dimension) {
  if (!run.structure) return null;
  const graph = graphAt(run, run.structure.steps.length - 1, "mean");
  return graph.on(dimension, REWARD) ? (graph.undecided(dimension, REWARD) ? "undecided" : "found") : null;
}

function togglePlay(parts, view) {
  if (view.timer) { stopPlay(parts, view); return; }
  const steps = shownSteps(view.episode);
  if (view.t >= steps - 1) view.t = -1;
  parts.play.textContent = "❚❚ Stop";
  const stride = Math.max(1, Math.round(steps / 300)); // any episode within about half a minute
  const tick = () => {
    moveTo(parts, view, view.t + stride);
    if (view.t >= steps - 1) stopPlay(parts, view);
  };
  view.timer = setInterval(tick, 100);
  tick();
}

function stopPlay(parts, view) {
  clearInterval(view.timer);
  view.timer = null;
  parts.play.textContent = "▶ Play";
}
