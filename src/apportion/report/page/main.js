// Unpack, draw everything once, and again whenever the colours change.

function chosenTheme() {
  try {
    return localStorage.getItem("apportion-theme");
  } catch {
    return null; // some browsers keep nothing for files
  }
}

function useTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Use ${theme === "dark" ? "light" : "dark"} colours`);
  for (const redraw of redraws) redraw();
}

function startTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const ofSystem = () => (system.matches ? "dark" : "light");
  useTheme(chosenTheme() || ofSystem());
  system.addEventListener("change", () => { if (!chosenTheme()) useTheme(ofSystem()); });
  document.getElementById("theme").addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("apportion-theme", other);
    } catch { /* then it is forgotten */ }
    useTheme(other);
  });
}

async function start() {
  const loading = document.getElementById("loading");
  if (typeof DecompressionStream === "undefined") {
    loading.textContent = "This browser is too old to unpack the page: use one from 2023 or later.";
    return;
  }
  data = JSON.parse(await unpack("data"));
  drawOverview();
  drawNumbers();
  loading.textContent = "Unpacking the pictures …";
  document.getElementById("overview").after(loading);
  const library = await unpack("plotly");
  await new Promise((resolve) => setTimeout(resolve)); // let the browser show what there is
  const script = document.createElement("script");
  script.textContent = library;
  document.head.append(script);
  for (const draw of [drawCurves, drawStructure, drawPlayer]) draw();
  document.getElementById("footer").textContent = `Made with apportion ${data.version} on ${data.made}. Everything is in this file; it asks nothing of the network.`;
  loading.remove();
  document.body.dataset.ready = "yes";
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

function redrawOnResize() {
  let width = window.innerWidth, timer = null; // of the height only telephones' address bars care
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    if (window.innerWidth !== width) timer = setTimeout(() => { width = window.innerWidth; redraws.forEach((redraw) => redraw()); }, 150);
  });
}

startTheme();
redrawOnResize();
start().catch((error) => {
  document.getElementById("loading").textContent = `The page could not be drawn: ${error.message}`;
  throw error;
});
