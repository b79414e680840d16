"use strict";
// Draws the figures in the colours of the page, again when the reader's colour scheme changes and for paper.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const root = document.documentElement;
  const paper = { width: 680, height: 940, on: false };  // pixels of an A4 page within the margins of report.css
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const painter = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  // [red, green, blue, alpha], channels 0..1, of any CSS colour; null for other texts.
  function parseColour(text) {
    if (!CSS.supports("color", text)) return null;
    painter.clearRect(0, 0, 1, 1);
    painter.fillStyle = text;
    painter.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = painter.getImageData(0, 0, 1, 1).data;
    return a === 0 ? null : [r / 255, g / 255, b / 255, a / 255];
  }

  // Very light and very dark colours trade places on a dark page: ink stays ink and paper stays paper;
  // the colours in between carry data and stay.
  function forDarkPage(text) {
    const colour = parseColour(text);
    if (!colour) return text;
    const [r, g, b, a] = colour;
    const high = Math.max(r, g, b), low = Math.min(r, g, b);
    const lightness = (high + low) / 2, chroma = high - low;
    if (lightness > 0.3 && lightness < 0.78) return text;
    let hue = 0;
    if (chroma > 0) {
      if (high === r) hue = ((g - b) / chroma + 6) % 6;
      else if (high === g) hue = (b - r) / chroma + 2;
      else hue = (r - g) / chroma + 4;
    }
    const turned = 0.1 + 0.82 * (1 - lightness);
    const saturation = Math.min(chroma / (1 - Math.abs(2 * turned - 1)), 0.8);
    return `hsla(${hue * 60}, ${saturation * 100}%, ${turned * 100}%, ${a})`;
  }

  const known = new Map();  // a figure may hold one colour for each of thousands of points
  function darkened(text) {
    if (!known.has(text)) known.set(text, forDarkPage(text));
    return known.get(text);
  }

  function recolour(node, key) {
    if (typeof node === "string") return /colou?rs?$/i.test(key) ? darkened(node) : node;
    if (Array.isArray(node)) {
      return /colou?rs?$/i.test(key) || typeof node[0] === "object" ? node.map((item) => recolour(item, key)) : node;
    }
    if (node && typeof node === "object") {
      return Object.fromEntries(Object.entries(node).map(([name, child]) =>
        [name, /colorscale|colorway/i.test(name) ? child : recolour(child, name)]));
    }
    return node;
  }

  const isAxis = (name) => /^[xy]axis\d*$/.test(name);

  function styled(original, width) {
    const figure = dark.matches && !paper.on ? recolour(original, "") : structuredClone(original);
    const layout = figure.layout ??= {};
    delete layout.width;
    layout.autosize = true;
    const axis = { gridcolor: css("--grid"), linecolor: css("--rule"), zerolinecolor: css("--rule"), tickcolor: css("--rule"), automargin: true };
    const base = ((layout.template ??= {}).layout ??= {});
    for (const name of ["xaxis", "yaxis"]) base[name] = { ...base[name], ...axis };
    for (const name of ["xaxis", "yaxis", "zaxis"]) {
      base.scene = { ...base.scene, [name]: { ...base.scene?.[name], backgroundcolor: "rgba(0,0,0,0)", gridcolor: css("--rule") } };
    }
    base.font = { ...base.font, color: css("--ink"), family: css("--sans") };
    base.hoverlabel = { ...base.hoverlabel, bgcolor: css("--surface"), bordercolor: css("--rule"), font: { color: css("--ink") } };
    base.legend = { ...base.legend, bgcolor: "rgba(0,0,0,0)" };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: css("--ink-soft"), activecolor: css("--ink") };
    layout.margin = { l: 56, r: 16, b: 48, ...layout.margin };
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    if (width < 600) {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, xanchor: "left", y: layout.legend?.y ?? -0.22, yanchor: "top" };
      layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 48), r: Math.min(layout.margin.r, 12) };
      layout.font = { ...layout.font, size: Math.min(layout.font?.size ?? 11, 11) };
    }
    if (touch.matches) {  // a finger that crosses a figure scrolls the page
      layout.dragmode = false;
      for (const name of new Set(["xaxis", "yaxis", ...Object.keys(layout).filter(isAxis)])) {
        layout[name] = { ...layout[name], fixedrange: true };
      }
    }
    return figure;
  }

  const plots = [...document.querySelectorAll("figure.plot")].map((figure) => ({
    canvas: figure.querySelector(".canvas"),
    original: JSON.parse(figure.querySelector("script").textContent),
  }));
  const draw = () => plots.forEach(({ canvas, original }) => {
    const { data, layout, frames } = styled(original, canvas.clientWidth);
    if (paper.on) Object.assign(layout, { autosize: false, width: canvas.clientWidth, height: canvas.clientHeight });
    const config = {
      responsive: true,
      displaylogo: false,
      displayModeBar: !touch.matches,
      modeBarButtonsToRemove: ["zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    };
    Plotly.react(canvas, { data, layout, frames, config });
  });
  if (plots.length) {
    draw();
    dark.addEventListener("change", draw);
  }

  // Paper has one width and no dark side, and what is folded on it stays folded for ever: code does, the tables of
  // parameters and machine become its last pages. A figure that needs more room than there is gets smaller as a whole.
  const tables = document.querySelector(".drawers");
  let unfolded = [];
  addEventListener("beforeprint", () => {
    paper.on = true;
    root.classList.add("printing");
    unfolded = [...document.querySelectorAll(".drawers details:not([open]), .error details:not([open])")];
    unfolded.forEach((drawer) => { drawer.open = true; });
    plots.forEach(({ canvas }) => {
      canvas.dataset.screen = canvas.getAttribute("style");
      const width = Math.max(paper.width, parseFloat(canvas.style.minWidth) || 0);
      const zoom = paper.width / width;
      const height = Math.min(canvas.clientHeight, paper.height / zoom);
      canvas.setAttribute("style", `width: ${width}px; height: ${height}px; zoom: ${zoom}`);
    });
    document.querySelector("footer.page").before(tables);
    draw();
  });
  addEventListener("afterprint", () => {
    paper.on = false;
    root.classList.remove("printing");
    unfolded.forEach((drawer) => { drawer.open = false; });
    plots.forEach(({ canvas }) => canvas.setAttribute("style", canvas.dataset.screen));
    document.querySelector("header.page").append(tables);
    draw();
  });

  const drawers = [...document.querySelectorAll("details.code")];
  const button = document.getElementById("all-code");
  button.hidden = drawers.length === 0;
  button.addEventListener("click", () => {
    const open = drawers.some((drawer) => !drawer.open);
    drawers.forEach((drawer) => { drawer.open = open; });
    button.textContent = open ? "Hide all code" : "Show all code";
  });
})();
