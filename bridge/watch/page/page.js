// Draws what /status and /history tell.  Every text from there becomes the text of an element, never its markup.
"use strict";

const STATUS_MS = 2000;
const HISTORY_MS = 10000;
const TIMEOUT_MS = 8000;
const SVG = "http://www.w3.org/2000/svg";
const HOUR = 3600;
const UNKNOWN = "the target has not told yet";

const at = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
}

// --- numbers and times in words

const count = (number) => (number === null || number === undefined ? "?" : Math.round(number).toLocaleString("en"));

function short(number) {
  if (number < 10000) return count(number);
  const [size, unit] = number < 1e6 ? [1e3, "k"] : number < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return Number((number / size).toPrecision(3)) + unit;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes < 10 && unit ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

// --- parts of the page

function showState(status) {
  at("pipeline").textContent = status.pipeline;
  document.title = `${status.pipeline} · bridge`;
  const state = at("state");
  const lag = lagOf(status);
  const [words, kind] = !status.ready ? ["not applying", "bad"] : lag > 60 ? ["behind", "mild"] : ["applying", "good"];
  state.textContent = words;
  state.className = `pill ${kind}`;
  at("about").textContent = `version ${status.version}, up ${span(status.now - status.started_at)}`;
  at("reason").textContent = status.reason;
  at("reason").hidden = !status.reason;
}

function lagOf(status) {
  if (status.apply_lag === null || status.apply_lag === undefined) return null;
  return Math.max(0, status.source_lag + status.apply_lag);
}

function showTiles(status) {
  const lag = lagOf(status);
  const behind = (status.partitions || []).reduce((sum, one) => sum + (one.behind || 0), 0);
  const tiles = [
    [lag === null ? "lag" : `lag: source ${span(status.source_lag)}, apply ${span(status.apply_lag)}`, span(lag)],
    ["rows per second", count(status.rows_per_second)],
    ["rows since the start", short(status.rows)],
    [`waiting in memory, ${size(status.backlog_bytes)}`, `${short(status.backlog_rows)} rows`],
    ["messages behind", short(behind)],
  ];
  at("tiles").replaceChildren(
    ...tiles.map(([name, value]) => make("div", { class: "tile" }, make("span", {}, name), make("b", {}, value))),
  );
}

function showPhases(phases) {
  const total = phases.reduce((sum, phase) => sum + phase.seconds, 0) || 1;
  at("bar").replaceChildren(
    ...phases.map((phase, number) => {
      const part = make("i", { class: `p${number}`, title: phase.name });
      part.style.width = `${(100 * phase.seconds) / total}%`;
      return part;
    }),
  );
  at("phases").replaceChildren(
    ...phases.map((phase, number) =>
      make("li", {}, make("span", { class: `key p${number}` }), phase.name,
        make("b", {}, `${Math.round((100 * phase.seconds) / total)} %`))),
  );
}

function showWaiting(status) {
  at("waiting").textContent = status.waiting_for;
  const codes = Object.entries(status.quarantined_by_code).map(([code, number]) => `${number} ${code}`).join(", ");
  const rows = [
    ["everything is in the target below", status.applied_time.replace("T", " ").replace("Z", " UTC"), false],
    ["order", status.order === "partition" ? "each partition's own" : "commit ts", false],
    ["held in the quarantine", codes || (status.target_looked_at === null ? UNKNOWN : "nothing"), codes !== ""],
    ["quarantined since the start", count(status.quarantined), status.quarantined > 0],
    ["came late, dropped", count(status.late), status.late > 0],
    ["left out, never written", count(status.left_out), false],
    ["retries on the target", count(status.retries), false],
    ["transactions", count(status.transactions), false],
    ["of them in safe mode", count(status.safe_mode), false],
  ];
  at("counts").replaceChildren(
    ...rows.flatMap(([name, value, warns]) => [make("dt", {}, name), make("dd", warns ? { class: "warn" } : {}, value)]),
  );
}

function showTable(id, heads, rows) {
  const cell = (tag, [value, kind]) => make(tag, kind ? { class: kind } : {}, value);
  at(id).replaceChildren(
    make("thead", {}, make("tr", {}, ...heads.map((head) => cell("th", head)))),
    make("tbody", {}, ...rows.map(([kind, cells]) => make("tr", kind ? { class: kind } : {}, ...cells.map((one) => cell("td", one))))),
  );
}

function showPartitions(status) {
  const list = status.partitions;
  at("partition-count").textContent =
    list.length < status.partition_count ? `${list.length} of ${count(status.partition_count)}` : count(list.length);
  const byBoundary = status.order !== "partition";
  const heads = [["partition"], ...(byBoundary ? [["last boundary"]] : []), ["read to", "spare"], ["behind"]];
  const rows = list.map((one) => {
    const name = `${one.topic}/${one.partition}${one.holds_back && list.length > 1 ? "  holds the resolved ts back" : ""}`;
    const age = one.boundary_age === null ? "none so far" : `${span(one.boundary_age)} ago`;
    const cells = [[name], ...(byBoundary ? [[age]] : []), [count(one.read), "spare"], [count(one.behind)]];
    return [one.holds_back && list.length > 1 ? "slow" : "", cells];
  });
  showTable("partitions", heads, rows);
}

function showTables(status) {
  const list = status.tables;
  at("table-count").textContent =
    list.length < status.table_count ? `the ${list.length} busiest of ${count(status.table_count)}` : count(list.length);
  const most = Math.max(...list.map((one) => one.rows_per_second), 1);
  const rows = list.map((one) => {
    const bar = make("i", {});
    bar.style.width = `${(100 * one.rows_per_second) / most}%`;
    const rate = make("div", { class: "share" }, bar, make("span", {}, count(one.rows_per_second)));
    return ["", [[one.name], [rate], [short(one.inserts), "spare"], [short(one.updates), "spare"], [short(one.deletes), "spare"]]];
  });
  const heads = [["table"], ["rows/s"], ["inserts", "spare"], ["updates", "spare"], ["deletes", "spare"]];
  showTable("tables", heads, rows);
}

const KINDS = { held: "mild", refused: "bad", running: "mild", done: "good" };

function showChanges(changes, isKnown) {
  const states = Object.entries(changes.by_state).map(([state, number]) => `${number} ${state}`);
  at("change-count").textContent = states.join(", ");
  const none = make("li", { class: "none" }, isKnown ? "none so far" : UNKNOWN);
  at("changes").replaceChildren(...(changes.last.length ? changes.last.map(changeItem) : [none]));
}

function changeItem(change) {
  const item = make("li", {},
    make("span", { class: "when" }, change.started_at.replace("T", " ").slice(0, 19)),
    make("span", { class: `pill ${KINDS[change.state] || ""}` }, change.state),
    make("div", { class: "statement" }, make("code", {}, change.statement)),
  );
  if (change.run_as && change.run_as !== change.statement) {
    item.append(make("div", { class: "rewrites" }, "run as ", make("code", {}, change.run_as)));
  }
  for (const rewrite of change.rewrites) {
    const before = rewrite.before ? [make("code", { class: "gone" }, rewrite.before), " → "] : ["added "];
    item.append(make("div", { class: "rewrites" }, ...before, make("code", {}, rewrite.after || "nothing"), ` ${rewrite.why}`));
  }
  if (change.outcome && change.outcome !== "ran") item.append(make("div", { class: "rewrites" }, change.outcome));
  return item;
}

// --- the chart

let points = null;

function showChart() {
  const box = at("chart");
  const [width, height, left, bottom] = [box.clientWidth || 600, box.clientWidth < 600 ? 180 : 220, 46, 20];
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "lag over the last hour" });
  box.replaceChildren(svg);
  if (!points || !points.at.length) {
    svg.append(draw("text", { x: left, y: height / 2 }, "no lag is known so far"));
    return;
  }
  const end = points.at[points.at.length - 1];
  const start = Math.max(end - HOUR, Math.min(points.at[0], end - HOUR / 12));
  const totals = points.at.map((_, i) => Math.max(0, points.source_lag[i] || 0) + (points.apply_lag[i] || 0));
  const top = niceTop(Math.max(...totals, 1));
  const x = (unix) => left + ((unix - start) / (end - start || 1)) * (width - left - 4);
  const y = (lag) => 8 + (1 - Math.min(lag, top) / top) * (height - bottom - 8);
  for (let i = 0; i <= 4; i += 1) {
    const lag = (top * i) / 4;
    svg.append(draw("line", { class: "grid", x1: left, x2: width, y1: y(lag), y2: y(lag) }),
      draw("text", { x: left - 6, y: y(lag) + 4, "text-anchor": "end" }, axis(lag)));
  }
  const step = [60, 120, 300, 600, 900].find((seconds) => (end - start) / seconds <= width / 90) || 1200;
  for (let unix = Math.ceil(start / step) * step; unix <= end; unix += step) {
    svg.append(draw("text", { x: Math.min(x(unix), width - 16), y: height - 4, "text-anchor": "middle" }, clock(unix)));
  }
  const known = points.at.map((_, i) => i).filter((i) => points.source_lag[i] !== null && points.at[i] >= start);
  const source = known.map((i) => Math.max(0, points.source_lag[i]));
  svg.append(area("area-source", known.map((i) => x(points.at[i])), known.map(() => y(0)), source.map(y)),
    area("area-apply", known.map((i) => x(points.at[i])), source.map(y), known.map((i) => y(totals[i]))));
  follow(svg, known, x, width, height - bottom);
}

const axis = (lag) => (lag < 120 ? `${lag % 1 ? lag.toFixed(lag < 1 ? 2 : 1) : lag} s` : lag < 7200 ? `${Math.round(lag / 6) / 10} min` : `${Math.round(lag / 360) / 10} h`);

function niceTop(most) {
  for (const top of [1, 2, 4, 8, 20, 40, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400]) if (most <= top) return top;
  return 14400 * Math.ceil(most / 14400);
}

function area(kind, xs, lows, highs) {
  const there = xs.map((one, i) => `${one.toFixed(1)},${highs[i].toFixed(1)}`);
  const back = xs.map((one, i) => `${one.toFixed(1)},${lows[i].toFixed(1)}`).reverse();
  return draw("polygon", { class: kind, points: [...there, ...back].join(" ") });
}

function follow(svg, known, x, width, foot) {
  const mark = draw("line", { class: "mark", y1: 8, y2: foot, visibility: "hidden" });
  svg.append(mark);
  const show = (event) => {
    const wanted = ((event.clientX - svg.getBoundingClientRect().left) * width) / svg.clientWidth;
    const near = known.reduce((best, i) => (Math.abs(x(points.at[i]) - wanted) < Math.abs(x(points.at[best]) - wanted) ? i : best), known[0]);
    if (near === undefined) return;
    mark.setAttribute("x1", x(points.at[near]));
    mark.setAttribute("x2", x(points.at[near]));
    mark.setAttribute("visibility", "visible");
    at("hovered").textContent = `${clock(points.at[near])}  source ${span(points.source_lag[near])}, apply ${span(points.apply_lag[near])}, ${count(points.rows_per_second[near])} rows/s`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    at("hovered").textContent = "";
  });
}

// --- asking

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer.json();
}

async function refreshStatus() {
  const status = await ask("status");
  showState(status);
  showChanges(status.schema_changes, status.target_looked_at !== null);
  if (status.partitions === undefined) return;
  showTiles(status);
  showPhases(status.phases);
  showWaiting(status);
  showPartitions(status);
  showTables(status);
}

async function refreshHistory() {
  points = await ask("history");
  showChart();
}

function lost(error) {
  at("state").textContent = "no answer";
  at("state").className = "pill bad";
  at("reason").textContent = `The bridge does not answer (${error.message}). What is below is the last that it said.`;
  at("reason").hidden = false;
}

function keep(refresh, milliseconds) {
  const again = async () => {
    try {
      if (!document.hidden) await refresh();
    } catch (error) {
      lost(error);
    }
    setTimeout(again, milliseconds);
  };
  again();
}

keep(refreshStatus, STATUS_MS);
keep(refreshHistory, HISTORY_MS);
window.addEventListener("resize", showChart);
