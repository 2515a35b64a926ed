// What was run, and what came out, at a glance.

const BLOCK_TITLES = {
  state_to_reward: "s→r", action_to_reward: "a→r", state_to_state: "s→s", action_to_state: "a→s",
};

function drawOverview() {
  const place = document.getElementById("overview");
  const runs = data.runs;
  document.title = `${runs.length === 1 ? runs[0].label : count(runs.length, "run")} · apportion report`;
  if (runs.length === 1) {
    place.append(el("div", { class: "muted" }, describe(runs[0])), el("h1", {}, runs[0].label), statusLine(runs[0]),
      el("p", { class: "lead" }, runs[0].sentence), ...certificate(runs[0]), statistics(runs[0]));
    return;
  }
  place.append(el("h1", {}, `${runs.length} runs`), el("div", { class: "card scroll" }, comparison(runs)));
  for (const run of runs) {
    place.append(el("p", { class: "lead", style: "font-size:1.02rem;margin:.9rem 0 0" },
      el("strong", {}, swatch(run), run.label), `. ${run.sentence}`), ...certificate(run));
  }
}

// First what is damaged or gone in the run folder, and which seeds failed.
const certificate = (run) =>
  [...run.notes, ...run.faults, ...run.certified].map((text) => el("p", { class: "note" }, text));

// What belongs to the reward's quality, the most telling first: a correlation needs a true reward of each step.
const qualities = (stepRewards) => (stepRewards ? ["reward_correlation", "return_error"] : ["return_error", "reward_correlation"]);

const describe = (run) => `${run.env} · ${run.method} · ${run.backbone} · ${count(run.seeds.length, "seed")}`;

function statusLine(run) {
  const { state = "unknown", step, seconds } = run.status;
  const wanted = state === "finished" || !run.steps_wanted ? "" : ` of ${whole(run.steps_wanted)}`;
  const parts = known(step) ? ` at step ${whole(step)}${wanted} after ${duration(seconds)}` : "";
  return el("div", {}, el("span", { class: state === "finished" ? "badge on" : "badge reward" }, state),
    el("span", { class: "muted" }, parts));
}

function swatch(run) {
  const dot = el("span", { class: "swatch", "aria-hidden": "true" });
  const paint = () => { dot.style.background = runColour(run, colours()); };
  redraws.push(paint);
  paint();
  return dot;
}

function statistics(run) {
  const quality = {
    reward_correlation: run.step_rewards
      ? ["Reward correlation", score(run.scores.reward_correlation), "Of the learned with the true reward, step by step: 1 is perfect."]
      : ["Reward correlation", { value: "–", aside: "no true reward of a step" }, "The environment pays only at the end: no step has a true reward to compare with."],
    return_error: ["Return error", score(run.scores.return_error), "How far sums of learned rewards are from the returns of fresh episodes, as a share: 0 is perfect."],
  };
  const cards = [
    ["Return", score(run.scores.return), `Mean ${run.step_rewards ? "true" : "paid"} return of the last evaluation's episodes.`],
    ["Success rate", run.scores.success && score(run.scores.success), "Share of the last evaluation's episodes in which the environment reported success."],
    ...qualities(run.step_rewards).map((name) => quality[name]),
    ["Structure F1", structureScore(run), "Edges found against the true graph: 1 is exact."],
    ["Wall time", { value: duration(run.status.seconds), aside: `${whole(run.status.step)} steps per seed` }, "Of the training so far."],
  ];
  return el("div", { class: "grid stats" }, ...cards.filter(([, content]) => content).map(([label, content, title]) =>
    el("div", { class: "card stat", title }, el("div", { class: "label" }, label),
      el("div", { class: "value" }, content.value), ...[content.aside].flat().map((line) => el("div", { class: "aside" }, line)))));
}

function score(found) {
  if (!found) return { value: "–", aside: "no evaluation yet" };
  const alive = found.lanes.length - found.missing;
  const lost = found.missing ? `, ${found.missing} without a number` : "";
  if (alive === 0) return { value: "–", aside: "no seed has a number" };
  if (alive === 1) return { value: number(found.iqm), aside: `one seed${lost}` };
  return { value: number(found.iqm), aside: [`95%: ${interval(found)}`, `IQM of ${alive} seeds${lost}`] };
}

const interval = (found) => known(found.interval[0]) ? `${number(found.interval[0])} to ${number(found.interval[1])}` : "–";

function structureScore(run) {
  if (!run.structure_scores) return null;
  const blocks = Object.entries(run.structure_scores);
  return {
    value: number(blocks.reduce((sum, [, each]) => sum + each.f1, 0) / blocks.length),
    aside: blocks.map(([block, each]) => `${BLOCK_TITLES[block]} ${each.f1.toFixed(2)}`).join(" · "),
  };
}

function comparison(runs) {
  const cell = (found) => found && known(found.iqm)
    ? [number(found.iqm), known(found.interval[0]) ? el("div", { class: "muted", style: "font-size:.8rem" }, interval(found)) : ""]
    : "–";
  const succeeds = runs.some((run) => run.scores.success) ? ["success"] : [];
  const names = [...succeeds, ...qualities(runs.some((run) => run.step_rewards))];
  return table(["run", "what", "status", "#return", ...names.map((name) => `#${name.replace("_", " ")}`), "#structure F1", "#wall time"],
    runs.map((run) => [[swatch(run), run.label], describe(run), `${run.status.state || "unknown"}, ${whole(run.status.step)} steps`,
      cell(run.scores.return), ...names.map((name) => cell(run.scores[name])),
      run.structure_scores ? structureScore(run).value : "–", duration(run.status.seconds)]),
    "The runs: IQM over seeds with 95% bootstrap intervals");
}
