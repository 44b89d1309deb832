"use strict";
// Text from runs reaches the page only as text nodes and attributes, never as HTML.

const WIDTH = 520, HEIGHT = 290, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 42;
const DASHES = ["", "6 4", "2 3", "9 3 2 3"];
const SVG = "http://www.w3.org/2000/svg";
const zooms = new Map(); // by figure: the range of x shown, kept when live data are drawn anew

function node(name, attributes = {}, ...children) {
  const made = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const SVG_NAMES = new Set(["svg", "path", "line", "circle", "rect", "text", "g", "clipPath", "defs"]);
const colour = (k) => `var(--c${k % 8})`;

function number(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(5, Math.ceil(Math.log10(size + 1))) });
}
const percent = (value) => `${(100 * value).toFixed(2)} %`;

function memory(bytes) {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.abs(bytes) || 1) / 10)));
  const value = bytes / 1024 ** power;
  return `${+value.toFixed(value < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function duration(seconds) {
  if (seconds < 100) return `${number(+seconds.toFixed(seconds < 10 ? 2 : 1))} s`;
  return seconds < 6000 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(2)} h`;
}

// Round values that divide [low, high] into some `count` parts: of time, minutes and hours, too; of
// memory, powers of two.
function steps(low, high, count, show) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  if (show === memory) step = 2 ** Math.ceil(Math.log2(rough));
  if (show === duration && rough > 5) step = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((s) => s >= rough) ?? 3600 * Math.ceil(rough / 3600);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9) + 0 /* no -0 */; k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

function decades(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 6)), found = [];
  for (let k = first; k <= last; k += every)
    for (const m of last - first < 2 ? [1, 2, 5] : [1]) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) found.push(m * 10 ** k);
  return found.length > 1 ? found : [low, high].map((v) => +v.toPrecision(3));
}

// A line chart. series: [{name, colour, dash, points: [[x, y], ...]}]; references: [{name, points}];
// marks: [{name, colour, at: [x, y]}].
function chart({ title, xName, yName, series, x = number, y = number, log = false, box, references = [], marks = [], dots = !box, of }) {
  const id = `${title} / ${xName}`;
  series = series.map((s) => ({ ...s, points: s.points.filter(([a, b]) => a !== null && b !== null && (!log || b > 0)) })).filter((s) => s.points.length);
  if (!series.length) return null;
  const all = series.flatMap((s) => s.points);
  const full = box ? [box[0], box[1]] : padded(range([0, ...all.map((p) => p[0])]), 0);
  const [x0, x1] = zooms.get(id) ?? full;
  const seen = all.filter(([a]) => a >= x0 && a <= x1);
  const [y0, y1] = box ? [box[2], box[3]] : log ? logRange((seen.length ? seen : all).map((p) => p[1])) : padded(range((seen.length ? seen : all).map((p) => p[1]).concat(zooms.has(id) ? [] : references.flatMap((r) => r.points.map((p) => p[1])))), 0.06);
  const px = (v) => LEFT + ((v - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const share = (v) => (log ? Math.log(v / y0) / Math.log(y1 / y0) : (v - y0) / (y1 - y0));
  const py = (v) => HEIGHT - BOTTOM - share(v) * (HEIGHT - TOP - BOTTOM);

  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0", "aria-label": `${title} over ${xName}` });
  const clip = `clip${chart.count = (chart.count ?? 0) + 1}`;
  svg.append(node("defs", {}, node("clipPath", { id: clip }, node("rect", { x: LEFT, y: TOP - 4, width: WIDTH - LEFT - RIGHT + 5, height: HEIGHT - TOP - BOTTOM + 8 }))));
  const yTicks = log ? decades(y0, y1) : steps(y0, y1, 5, y);
  for (const v of yTicks) {
    svg.append(node("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: py(v), y2: py(v) }));
    svg.append(node("text", { x: LEFT - 6, y: py(v) + 4, "text-anchor": "end" }, tick(v, y, yTicks)));
  }
  const xTicks = steps(x0, x1, 5, x);
  for (const v of xTicks) {
    svg.append(node("line", { class: "axis", x1: px(v), x2: px(v), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
    svg.append(node("text", { x: px(v), y: HEIGHT - BOTTOM + 17, "text-anchor": px(v) > WIDTH - 30 ? "end" : "middle" }, tick(v, x, xTicks)));
  }
  svg.append(node("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xName));
  const inside = node("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  const line = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${px(a).toFixed(2)} ${py(b).toFixed(2)}`).join("");
  for (const r of references) inside.append(node("path", { class: "reference", d: line(r.points) }));
  for (const s of series) {
    inside.append(node("path", { class: "curve", d: line(s.points), style: `stroke: ${s.colour}`, "stroke-dasharray": s.dash ?? "" }));
    if (s.points.length <= 40 && dots) for (const [a, b] of s.points) inside.append(node("circle", { cx: px(a), cy: py(b), r: 2.4, style: `fill: ${s.colour}` }));
  }
  for (const m of marks) inside.append(node("circle", { cx: px(m.at[0]), cy: py(m.at[1]), r: 4.5, style: `fill: ${m.colour}; stroke: var(--page)` }));

  const legend = node("span", { class: "legend" });
  for (const s of series) if (s.name) legend.append(node("span", {}, node("svg", { viewBox: "0 0 22 8" }, node("path", { class: "curve", d: "M0 4L22 4", style: `stroke: ${s.colour}`, "stroke-dasharray": s.dash ?? "" })), s.name));
  for (const r of references) if (r.name) legend.append(node("span", {}, node("svg", { viewBox: "0 0 22 8" }, node("path", { class: "reference", d: "M0 4L22 4" })), r.name));
  for (const m of marks) if (m.name) legend.append(node("span", {}, node("svg", { viewBox: "0 0 22 8" }, node("circle", { cx: 11, cy: 4, r: 4, style: `fill: ${m.colour}` })), m.name));
  const figure = node("figure", { "data-figure": id }, node("figcaption", {}, title, legend), svg);
  interact({ figure, svg, series, px, py, x, y, xName, id, range: [x0, x1], of });
  return figure;
}

const range = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
const tick = (v, show, ticks) => (show === percent ? `${+(100 * v).toFixed(ticks.length > 1 && ticks[1] - ticks[0] < 0.01 ? 1 : 0)} %` : show(v));

function padded([low, high], share) {
  const extra = (high - low) * share || (share || high === low ? Math.abs(high) * 0.05 || 1 : 0);
  return [low - extra, high + extra];
}

function logRange(values) {
  const [low, high] = range(values);
  return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
}

// Hover shows values; dragging zooms in, a double click or the button zooms out; arrow keys step.
function interact({ figure, svg, series, px, py, x, y, xName, id, range: [x0, x1], of }) {
  const tip = node("div", { class: "tip", hidden: "" });
  const cursor = node("g", {});
  svg.append(cursor);
  figure.append(tip);
  const value = (event) => {
    const place = svg.getBoundingClientRect();
    const at = ((event.clientX - place.left) / place.width) * WIDTH;
    return Math.min(x1, Math.max(x0, x0 + ((at - LEFT) / (WIDTH - LEFT - RIGHT)) * (x1 - x0)));
  };
  const redraw = () => {
    const made = of();
    figure.replaceWith(made);
    made.querySelector("svg").focus({ preventScroll: true });
  };
  const zoom = (from, to) => {
    from === null ? zooms.delete(id) : zooms.set(id, [from, to]);
    redraw();
  };
  let start = null, shown = null;
  const hide = () => { tip.hidden = true; cursor.replaceChildren(); shown = null; };
  const show = (wanted) => {
    cursor.replaceChildren();
    const nearest = series.map((s) => s.points.reduce((best, p) => (Math.abs(p[0] - wanted) < Math.abs(best[0] - wanted) ? p : best)));
    shown = nearest.reduce((best, p) => (Math.abs(p[0] - wanted) < Math.abs(best - wanted) ? p[0] : best), nearest[0][0]);
    if (shown < x0 || shown > x1) return hide();
    cursor.append(node("line", { class: "cursor", x1: px(shown), x2: px(shown), y1: TOP, y2: HEIGHT - BOTTOM }));
    tip.replaceChildren(node("div", { class: "soft" }, `${xName}: ${x(shown)}`));
    series.forEach((s, k) => {
      cursor.append(node("circle", { cx: px(nearest[k][0]), cy: py(nearest[k][1]), r: 3.5, style: `fill: ${s.colour}` }));
      const label = node("div", {}, `${s.name ? `${s.name}: ` : ""}${y(nearest[k][1])}${nearest[k].length > 2 ? ` of ${number(nearest[k][2])} rows` : ""}`);
      label.style.color = s.colour;
      tip.append(label);
    });
    tip.hidden = false;
    const scale = svg.clientWidth / WIDTH, half = px(shown) > WIDTH / 2;
    tip.style.left = half ? "auto" : `${px(shown) * scale + 12}px`;
    tip.style.right = half ? `${(WIDTH - px(shown)) * scale + 12}px` : "auto";
    tip.style.top = `${figure.clientHeight - svg.clientHeight + 16}px`;
  };
  svg.addEventListener("pointermove", (event) => {
    const now = value(event);
    show(now);
    if (start !== null) cursor.append(node("rect", { class: "chosen", x: Math.min(px(start), px(now)), width: Math.abs(px(start) - px(now)), y: TOP, height: HEIGHT - TOP - BOTTOM }));
  });
  svg.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType === "mouse") { start = value(event); svg.setPointerCapture(event.pointerId); } });
  svg.addEventListener("pointerup", (event) => {
    const from = start, to = value(event);
    start = null;
    if (from !== null && Math.abs(px(from) - px(to)) > 8) zoom(Math.min(from, to), Math.max(from, to));
  });
  svg.addEventListener("pointerleave", () => { if (start === null) hide(); });
  svg.addEventListener("blur", hide);
  svg.addEventListener("dblclick", () => zoom(null));
  svg.addEventListener("keydown", (event) => {
    const places = [...new Set(series.flatMap((s) => s.points.map((p) => p[0])))].filter((v) => v >= x0 && v <= x1).sort((a, b) => a - b);
    const now = shown === null ? -1 : places.indexOf(shown);
    const next = { ArrowRight: Math.min(now + 1, places.length - 1), ArrowLeft: Math.max(now - 1, 0) }[event.key];
    if (next !== undefined && places.length) { event.preventDefault(); show(places[next]); }
    if (event.key === "Escape") zooms.has(id) ? zoom(null) : hide();
  });
  if (zooms.has(id)) {
    const button = node("button", { type: "button" }, "show all");
    button.addEventListener("click", () => zoom(null));
    figure.querySelector("figcaption").append(button);
  }
}

// A chart that draws itself again when it is zoomed.
function figureOf(options) {
  const made = () => chart({ ...options, of: made });
  return made();
}

// One figure over iterations and one over time; `lines`: [[name, column, table], ...].
function overBoth(title, runs, lines, options = {}) {
  return [["iteration", "iteration", number], ["seconds", "training time", duration]].map(([key, xName, x]) => {
    const series = runs.flatMap((run, r) => lines.map(([name, column, table], k) => {
      const from = run[table];
      if (!from || !from[column] || !from[key]) return null;
      const many = runs.length > 1;
      return {
        name: [many ? run.label : null, lines.length > 1 ? name : null].filter(Boolean).join(", "),
        colour: colour(many ? r : k), dash: many ? DASHES[k % 4] : "",
        points: from[key].map((v, i) => [v, from[column][i]]),
      };
    })).filter(Boolean);
    const xs = series.flatMap((s) => s.points.map((p) => p[0])).filter((v) => v !== null);
    const references = xs.length ? (options.levels ?? []).map(([name, level]) => ({ name, points: range([0, ...xs]).map((v) => [v, level]) })) : [];
    return figureOf({ title, xName, x, series, references, ...options.chart });
  }).filter(Boolean);
}

function section(title, ...children) {
  const kept = children.flat().filter(Boolean);
  return kept.length ? node("section", {}, node("h2", {}, title), ...kept) : null;
}
const figures = (...some) => { const kept = some.flat().filter(Boolean); return kept.length ? node("div", { class: "figures" }, ...kept) : null; };

// Runs side by side: a row for each fact that a run has.
function compared(runs, key, mark) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run[key] ?? {})))];
  if (!names.length) return null;
  const body = names.map((name) => {
    const cells = runs.map((run) => run[key]?.[name] ?? "-");
    const differs = mark && new Set(cells).size > 1;
    return node("tr", differs ? { class: "differs" } : {}, node("th", { scope: "row" }, name), ...cells.map((cell) => node("td", {}, cell)));
  });
  const head = runs.length > 1 ? [node("thead", {}, node("tr", {}, node("th"), ...runs.map((run) => node("th", { scope: "col" }, run.label))))] : [];
  return node("div", { class: "scroll" }, node("table", { class: "wide" }, ...head, node("tbody", {}, ...body)));
}

function confusion(run, many) {
  const { classes, counts } = run.confusion;
  const rows = counts.map((row, i) => {
    const total = row.reduce((a, b) => a + b, 0);
    const cells = row.map((count, j) => {
      const cell = node("td", { title: `${classes[i]} taken for ${classes[j]}: ${number(count)} (${percent(total ? count / total : 0)})` }, number(count));
      cell.style.background = `rgba(var(--heat), ${total ? (0.75 * count) / total : 0})`;
      return cell;
    });
    return node("tr", {}, node("th", { scope: "row" }, classes[i]), ...cells, node("td", {}, total ? percent(row[i] / total) : "-"));
  });
  const columns = classes.map((_, j) => counts.reduce((sum, row) => sum + row[j], 0));
  const precision = node("tr", {}, node("th", { scope: "row" }, "precision"), ...columns.map((sum, j) => node("td", {}, sum ? percent(counts[j][j] / sum) : "-")), node("td"));
  const head = node("tr", {}, node("th", {}, "true \\ predicted"), ...classes.map((name) => node("th", { scope: "col" }, name)), node("th", {}, "recall"));
  const title = many ? [node("h3", {}, run.label)] : [];
  return node("div", { class: "scroll" }, ...title, node("table", { class: "confusion" }, node("thead", {}, head), node("tbody", {}, ...rows, precision)));
}

function unitSquare(title, runs, table, xName, yName, columns, options = {}) {
  const some = runs.map((run, r) => [run, r]).filter(([run]) => run[table]);
  const series = some.map(([run, r]) => ({ name: runs.length > 1 ? run.label : "", colour: colour(r), points: run[table][columns[0]].map((v, i) => [v, ...columns.slice(1).map((c) => run[table][c][i])]) }));
  const marks = options.at ? some.filter(([run]) => run[table][options.at]).map(([run, r]) => ({ name: runs.length > 1 ? "" : "the model's threshold", colour: colour(runs.length > 1 ? r : 1), at: run[table][options.at] })) : [];
  const references = options.references ?? [{ name: options.reference, points: [[0, 0], [1, 1]] }];
  return figureOf({ title, xName: `${xName} (vertical: ${yName})`, series, marks, references, x: percent, y: percent, box: [0, 1, 0, 1.01], dots: options.dots });
}

function card(run, k) {
  const state = { converged: "converged", max_iterations: "wait", time_limit: "wait", running: "wait", stopped_early: "converged" }[run.status] ?? "bad";
  const made = node("div", { class: "run" }, node("h3", {}, run.label), node("p", {}, run.title),
    node("p", { class: `status ${state}` }, run.headline));
  made.style.setProperty("--colour", colour(k));
  for (const line of run.warnings) made.append(node("p", { class: "warning" }, line));
  if (run.advice) made.append(node("p", {}, run.command ? `${run.advice}:` : run.advice));
  if (run.command) made.append(node("p", {}, node("code", {}, run.command)));
  return made;
}

function draw({ title, made, runs }) {
  const percents = { chart: { y: percent } };
  const shares = [...new Set(runs.map((run) => run.majority).filter((v) => v !== null))];
  const positive = [...new Set(runs.map((run) => run.curves?.positive).filter(Boolean))].join(", ");
  const base = [...new Set(runs.map((run) => run.curves?.base).filter((v) => v !== undefined))];
  const limits = [...new Set(runs.map((run) => run.memory_limit).filter(Boolean))];
  const parts = [
    node("header", {}, node("h1", {}, title), node("p", { class: "soft" }, made), node("div", { class: "runs" }, ...runs.map(card))),
    section("Results", compared(runs, "results")),
    section("Training",
      node("p", { class: "soft screen" }, "Point at a figure for values, drag across it to zoom in, double-click to zoom out; arrow keys step through the points."),
      figures(
        overBoth("Relative gap", runs, [["gap / margin", "relative_gap", "metrics"]], { chart: { log: true } }),
        overBoth("Objective, 1/2 a'Qa", runs, [["objective", "objective", "metrics"]], { chart: { log: true } }),
        overBoth("Support vectors and working set", runs, [["support vectors", "support", "metrics"], ["working set", "working", "metrics"]]),
      )),
    section("Scores",
      figures(
        overBoth("Accuracy", runs, [["test", "accuracy", "scores"], ["validation", "accuracy", "validation"]], { ...percents, levels: shares.map((v) => ["always the majority class", v]) }),
        overBoth("AUC", runs, [["test", "auc", "scores"], ["validation", "auc", "validation"]], percents),
        runs.some((run) => run.curves) ? [
          unitSquare(`ROC curve${positive && ` of class ${positive}`}`, runs, "curves", "false positive rate", "recall", ["false_positive_rate", "recall"], { at: "roc_at", reference: "chance" }),
          unitSquare(`Precision and recall${positive && ` of class ${positive}`}`, runs, "curves", "recall", "precision", ["recall", "precision"], { at: "pr_at", references: base.map((v) => ({ name: "chance", points: [[0, v], [1, v]] })) }),
        ] : [],
        runs.some((run) => run.calibration) ? unitSquare("Calibration", runs, "calibration", "predicted probability", "share of such rows", ["probability", "share", "rows"], { reference: "perfectly calibrated", dots: true }) : [],
      )),
    runs.some((run) => run.confusion) ? section("Confusion matrix", ...runs.filter((run) => run.confusion).map((run) => confusion(run, runs.length > 1))) : null,
    section("Work and memory", compared(runs, "work"),
      figures(overBoth("Resident memory", runs, [["memory", "rss", "metrics"]], { chart: { y: memory }, levels: limits.map((v) => ["solver.memory_limit", v]) }))),
    section("Config", runs.length > 1 ? node("p", { class: "soft" }, "Rows that differ between the runs are marked.") : null, compared(runs, "config", true)),
    section("Versions", compared(runs, "versions", true)),
  ];
  document.getElementById("report").replaceChildren(...parts.filter(Boolean));
}

const data = JSON.parse(document.getElementById("data").textContent);
draw(data);
if (data.live) {
  let before = null;
  setInterval(async () => {
    try {
      const text = await (await fetch("data.json")).text();
      if (text === before || document.querySelector(".tip:not([hidden])")) return;
      before = text;
      draw(JSON.parse(text));
    } catch (error) {
      const header = document.querySelector("header p.soft");
      if (error instanceof TypeError) header.textContent = "no longer live: bigsvm report --follow has ended";
      else throw error;
    }
  }, 1500);
}
