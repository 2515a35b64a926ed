// Every number, setting and version.

function drawNumbers() {
  const place = section("numbers", "Numbers", "The last evaluation of each seed, and all that is needed to do it again.");
  data.runs.forEach((run, i) => {
    place.append(el("div", { class: "card", style: "margin-bottom:1rem" },
      el("h3", {}, ...(data.runs.length > 1 ? [swatch(run)] : []), run.label),
      el("p", { class: "muted" }, `${describe(run)} · ${run.status.state || "unknown"} at step ${whole(run.status.step)} · ${duration(run.status.seconds)}`),
      el("div", { class: "scroll" }, laneTable(run)), blockTable(run),
      folded("Settings", flat(run.config), i), folded("Versions", flat(run.versions), i),
      el("p", { class: "note" }, "Folder: ", el("code", {}, run.path))));
  });
}

function laneTable(run) {
  const names = qualities(run.step_rewards);
  const returns = run.scores.return, quality = names.map((name) => run.scores[name]);
  if (!returns) return el("p", {}, "No evaluation yet.");
  const blocks = run.structure_scores ? Object.keys(run.structure_scores) : [];
  const headings = ["#seed", "#return", ...names.map((name) => `#${name.replace("_", " ")}`), ...(run.certificates ? ["certified"] : []), ...blocks.map((block) => `#F1 ${BLOCK_TITLES[block]}`)];
  const filler = run.certificates ? [""] : [];
  const rows = run.seeds.map((seed, lane) => [String(seed), number(returns.lanes[lane]), ...quality.map((each) => number(each.lanes[lane])),
    ...(run.certificates ? [certifiedPart(run.certificates[lane])] : []),
    ...blocks.map((block) => number(run.structure_scores[block].f1_per_lane[lane]))]);
  const over = (title, value) => [title, ...[returns, ...quality].map(value), ...filler, ...blocks.map((block) => number(run.structure_scores[block].f1))];
  if (run.seeds.length > 1) {
    rows.push(over("IQM", (each) => number(each.iqm)), over("median", (each) => number(each.median)));
    rows.push(["95% of IQM", ...[returns, ...quality].map(interval), ...filler, ...blocks.map(() => "")]);
  }
  return table(headings, rows, `Scores of each seed of ${run.label}`);
}

function certifiedPart({ reward, dynamics, doubts }) {
  const part = reward && dynamics ? "yes" : reward ? "reward only" : dynamics ? "dynamics only" : "no";
  return el("span", { title: doubts.join("; ") || null }, part);
}

function blockTable(run) {
  if (!run.structure_scores) return el("span");
  return el("div", { class: "scroll", style: "margin-top:1rem" }, table(["structure, mean over seeds", "#F1", "#precision", "#recall"],
    Object.entries(run.structure_scores).map(([block, each]) => [BLOCK_TITLES[block], number(each.f1), number(each.precision), number(each.recall)]),
    "Structure scores"));
}

const folded = (title, rows) => el("details", {}, el("summary", {}, title),
  el("div", { class: "scroll" }, table(["name", "value"], rows.map(([name, value]) => [el("code", {}, name), el("code", {}, value)]), title)));

// Nested settings as dotted names.
function flat(value, path = "") {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([name, each]) => flat(each, path ? `${path}.${name}` : name));
  }
  return [[path, value === null ? "none" : Array.isArray(value) ? value.map(String).join(", ") : String(value)]];
}
