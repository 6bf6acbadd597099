// The chart of a result, drawn by uPlot: bars by minute, stacked by a label, and what was read below.
"use strict";

const HEIGHT = window.matchMedia("(min-width: 1700px)").matches ? Math.min(560, Math.max(420, window.innerHeight - 800)) : 280;
const READS_HEIGHT = 110;
const SECONDS = 60;
const HIDDEN = new Set(); // values that the legend has switched off, also after a renewal
const Chart = { scale: "linear", opened: null };
const IS_NARROW = window.innerWidth < 640;

function colour(name, alpha = 1) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g);
  probe.remove();
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

const clock = (minute) => minute.replace("T", " ").slice(0, 16);
const seconds = (minute) => Date.parse(`${minute}Z`) / 1000;
const said = (number) => number.toLocaleString("en");

// Every step of the span has a place, also one without lines.
function arranged(view) {
  const step = view.step_minutes * SECONDS;
  const first = seconds(view.first_minute);
  const steps = Math.round((seconds(view.until_minute) - first) / step);
  const bars = new Array(steps).fill(null);
  for (const bar of view.bars) bars[Math.round((seconds(bar.first_minute) - first) / step)] = bar;
  const times = bars.map((_, n) => first + n * step);
  return { step, times, bars };
}

// Of each value what lies on top of the ones before it; the last one has all that remains.
function stacked(view, bars) {
  const names = Object.keys(view.values);
  const isShown = (name) => !HIDDEN.has(name);
  const layers = [...names, ...(names.length ? ["others"] : ["lines"])];
  const tops = layers.map(() => []);
  bars.forEach((bar, n) => {
    let top = 0;
    layers.forEach((name, layer) => {
      const others = (one) => one.lines - one.parts.reduce((sum, part) => sum + part, 0);
      const lines = bar === null ? 0 : layer < names.length ? bar.parts[layer] : others(bar);
      if (isShown(name)) top += lines;
      tops[layer][n] = isShown(name) && top > 0 ? top : null;
    });
  });
  return { layers, tops };
}

function fills(layers) {
  const isAlone = layers.length === 1;
  return layers.map((name, n) =>
    isAlone ? colour("lines") : name === "others" ? colour("gone") : colour(`value-${n}`)
  );
}

function hatched(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour("raised");
  pen.lineWidth = 2;
  pen.beginPath();
  for (const x of [-8, 0, 8]) {
    pen.moveTo(x, 8);
    pen.lineTo(x + 8, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

// What a bar is besides its height: still open, amended, replayed, or of other rules; a complete step
// without a line, and one in which it was found that records are lost.
function marks(bars, gaps, lost) {
  const signs = { amended: ["▾", "planned"], outdated: ["◆", "waiting"], replayed: ["▲", "replayed"] };
  return (plot) => {
    const pen = plot.ctx;
    const width = plot.bbox.width / bars.length;
    pen.save();
    pen.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    const pattern = hatched(pen);
    const paint = { chosen: colour("ink", 0.12) };
    for (const name of ["quiet", "lost", "planned", "waiting", "replayed"]) paint[name] = colour(name);
    const floor = plot.bbox.top + plot.bbox.height;
    let before = null;
    bars.forEach((bar, n) => {
      const middle = plot.valToPos(plot.data[0][n], "x", true);
      if (plot.data[0][n] === Chart.opened) {
        pen.fillStyle = paint.chosen;
        pen.fillRect(middle - width / 2, plot.bbox.top, width, plot.bbox.height);
      }
      if (gaps[n]) {
        pen.fillStyle = paint.quiet;
        pen.fillRect(middle - width * 0.2, floor - 3 * devicePixelRatio, width * 0.4, 2 * devicePixelRatio);
      }
      if (n in lost) {
        pen.fillStyle = pen.strokeStyle = paint.lost;
        pen.setLineDash([4, 3]);
        pen.strokeRect(middle, plot.bbox.top, 0, plot.bbox.height);
        pen.fillText("✕", middle, plot.bbox.top + 10 * devicePixelRatio);
      }
      const kind = bar === null ? null : bar.outdated ? "outdated" : bar.replayed ? "replayed" : bar.state;
      const isFirst = kind !== before;
      before = kind;
      if (bar === null) return;
      const top = plot.valToPos(bar.lines, "y", true);
      if (bar.state === "open") {
        pen.fillStyle = pattern;
        pen.fillRect(middle - width / 2, top, width, floor - top);
      }
      // A band below the bars, and a sign where it begins.
      if (kind in signs) {
        pen.fillStyle = paint[signs[kind][1]];
        pen.fillRect(middle - width / 2, floor + devicePixelRatio, width, 3 * devicePixelRatio);
        if (isFirst) pen.fillText(signs[kind][0], middle, Math.max(top - 4, plot.bbox.top + 10));
      }
    });
    pen.restore();
  };
}

const axis = () => ({
  stroke: colour("quiet"),
  grid: { stroke: colour("line"), width: 1 },
  ticks: { show: false },
  font: "12px system-ui, sans-serif",
});

function times(values) {
  const day = new Date(values[0] * 1000).getUTCDate();
  return values.map((value, n) => {
    const [date, time] = new Date(value * 1000).toISOString().split("T");
    const isNewDay = n > 0 && new Date(value * 1000).getUTCDate() !== day;
    return isNewDay || time.startsWith("00:00") ? `${date.slice(5)} ${time.slice(0, 5)}` : time.slice(0, 5);
  });
}

const short = (value) =>
  value >= 1e6 ? `${value / 1e6} M` : value >= 1e4 ? `${value / 1e3} k` : said(value);

function options(place, height, step, range, more) {
  return {
    width: place.clientWidth,
    height,
    tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "UTC"),
    legend: { show: false },
    padding: [8, 20, 0, 0],
    scales: { x: { range: () => range }, y: more.y },
    axes: [
      { ...axis(), grid: { show: false }, values: (_, values) => times(values), space: 60, size: 28 },
      { ...axis(), values: (_, values) => values.map((v) => (v === null ? "" : short(v))), size: IS_NARROW ? 36 : 52, space: 48 },
    ],
    cursor: {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false },
      sync: { key: "minutes", setSeries: false },
    },
    series: more.series,
    hooks: more.hooks ?? {},
  };
}

const bars = () => uPlot.paths.bars({ size: [IS_NARROW ? 0.7 : 0.86, Infinity, 1], align: 0 });

class MinutesChart {
  constructor(figure, view) {
    this.figure = figure;
    this.view = view;
    Object.assign(this, arranged(view));
    this.place = figure.querySelector(".chart");
    this.told = figure.querySelector(".told");
    const complete = view.complete_before === null ? -Infinity : seconds(view.complete_before);
    this.gaps = this.bars.map((bar, n) => bar === null && this.times[n] + this.step <= complete);
    const shown = this.bars.filter((bar) => bar !== null).map((bar) => bar.lines);
    this.median = shown.sort((a, b) => a - b)[shown.length >> 1] ?? 0;
    const half = this.step / 2;
    this.range = [this.times[0] - half, this.times[this.times.length - 1] + half];
    this.draw();
    this.drawReads();
    this.drawLegend();
    this.place.addEventListener("keydown", (event) => this.onKey(event));
    this.resizes = new ResizeObserver(() => {
      for (const plot of [this.plot, this.reads]) {
        plot?.setSize({ width: this.place.clientWidth, height: plot.height });
      }
    });
    this.resizes.observe(this.place);
  }

  // A plot that is only taken out of the page still hears of the cursor of the others.
  destroy() {
    this.resizes.disconnect();
    this.plot.destroy();
    this.reads?.destroy();
  }

  draw() {
    this.plot?.destroy();
    const view = this.view;
    const { layers, tops } = stacked(view, this.bars);
    const shades = fills(layers);
    this.shades = Object.fromEntries(layers.map((name, n) => [name, shades[n]]));
    const isLog = Chart.scale === "log";
    const most = Math.max(1, ...tops.flat().filter((top) => top !== null));
    const y = isLog
      ? { distr: 3, log: 10, range: () => [0.5, most * 1.3] }
      : { range: () => [0, most * 1.08] };
    // The highest layer first, so that each lower one is drawn upon it.
    const order = layers.map((_, n) => n).reverse();
    const series = order.map((n) => ({
      label: layers[n], fill: shades[n], stroke: shades[n], width: 0, paths: bars(), points: { show: false },
    }));
    this.plot = new uPlot(
      options(this.place, HEIGHT, this.step, this.range, {
        y,
        series: [{}, ...series],
        hooks: {
          draw: [marks(this.bars, this.gaps, view.lost)],
          setCursor: [(plot) => this.point(plot.cursor.idx)],
          setSelect: [(plot) => this.brush(plot)],
        },
      }),
      [this.times, ...order.map((n) => tops[n])],
      this.place
    );
    this.plot.over.addEventListener("click", () => this.open(this.plot.cursor.idx));
  }

  drawReads() {
    const place = this.figure.querySelector(".reads");
    if (this.view.reads.length === 0) {
      place.hidden = true;
      return;
    }
    const of = (key) => {
      const found = new Array(this.times.length).fill(null);
      for (const one of this.view.reads) if (one.step < found.length) found[one.step] = one[key];
      return found;
    };
    // What was read is in bars, so that a step in which nothing was is seen.
    const read = { fill: colour("read", 0.5), width: 0, paths: bars(), points: { show: false } };
    const lag = { stroke: colour("lag"), width: 1.5, points: { show: false }, spanGaps: true };
    this.reads = new uPlot(
      options(place, READS_HEIGHT, this.step, this.range, {
        y: { range: (_, __, most) => [0, Math.max(1, most) * 1.1] },
        series: [{}, read, lag],
      }),
      [this.times, of("records"), of("waiting")],
      place
    );
  }

  drawLegend() {
    const legend = this.figure.querySelector(".legend");
    const swatch = (kind, fill) => {
      const found = document.createElement("span");
      found.className = `swatch ${kind}`;
      if (fill) found.style.background = fill;
      return found;
    };
    const parts = [];
    const names = Object.keys(this.view.values);
    const counted = Object.values(this.view.values).reduce((sum, lines) => sum + lines, 0);
    const all = this.bars.reduce((sum, bar) => sum + (bar?.lines ?? 0), 0);
    for (const name of names.length && all > counted ? [...names, "others"] : names) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!HIDDEN.has(name)));
      button.append(swatch("", this.shades[name]), name === "" ? "(none)" : name);
      button.addEventListener("click", () => {
        if (!HIDDEN.delete(name)) HIDDEN.add(name);
        this.draw();
        this.drawLegend();
      });
      parts.push(button);
    }
    const note = (kind, text, fill) => {
      const found = document.createElement("span");
      found.append(swatch(kind, fill), ` ${text}`);
      parts.push(found);
    };
    const has = (test) => this.bars.some((bar) => bar !== null && test(bar));
    if (has((bar) => bar.state === "open")) note("hatched", "still open");
    if (has((bar) => bar.state === "amended")) note("amended", "▾ amended");
    if (this.gaps.includes(true)) note("", "no lines", colour("quiet"));
    if (Object.keys(this.view.lost).length) note("", "✕ a loss was found", colour("lost"));
    if (has((bar) => bar.replayed)) note("replayed", "▲ replayed");
    if (has((bar) => bar.outdated)) note("outdated", "◆ under other rules");
    if (this.reads) {
      note("", "records read", colour("read"));
      note("", "waiting when planned", colour("lag"));
    }
    legend.replaceChildren(...parts);
  }

  describe(n) {
    const bar = this.bars[n];
    const at = clock(new Date(this.times[n] * 1000).toISOString());
    const lost = this.view.lost[n];
    const loss = lost === undefined ? [] : [`${said(lost)} records found lost`];
    if (bar === null) return [`${at}: no lines`, ...(this.gaps[n] ? [] : ["open"]), ...loss].join(", ");
    const times = bar.lines >= 2 * this.median ? [`${(bar.lines / this.median).toFixed(1)} × the median`] : [];
    const largest = Object.keys(this.view.values)
      .map((name, k) => [name || "(none)", bar.parts[k]])
      .filter(([, lines]) => lines > 0)
      .slice(0, 4)
      .map(([name, lines]) => `${name} ${said(lines)}`);
    const notes = [bar.state, ...(bar.replayed ? ["replayed"] : []), ...(bar.outdated ? ["under other rules"] : [])];
    return [`${at}: ${said(bar.lines)} lines`, ...times, ...largest, ...notes, ...loss].join(", ");
  }

  point(n) {
    if (n === null || n === undefined || n === this.at) return;
    this.at = n;
    this.told.textContent = this.describe(n);
  }

  minuteOf(n) {
    return new Date(this.times[n] * 1000).toISOString().slice(0, 16);
  }

  open(n) {
    if (n === null || n === undefined || this.bars[n] === null || this.plot.select.width > 0) return;
    if (this.view.step_minutes === 1) {
      Chart.opened = this.times[n];
      this.plot.redraw(false);
      void window.showBehind(`minute?at=${this.minuteOf(n)}`, this.describe(n));
      return;
    }
    const last = new Date((this.times[n] + this.step - SECONDS) * 1000).toISOString().slice(0, 16);
    this.zoom(this.minuteOf(n), last);
  }

  address(first, last) {
    const query = new URLSearchParams(this.view.by ? { by: this.view.by } : {});
    query.set("first", first);
    query.set("last", last);
    return `?${query}`;
  }

  zoom(first, last) {
    window.location.assign(this.address(first, last));
  }

  brush(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    const from = plot.posToIdx(left);
    const until = plot.posToIdx(left + width);
    const first = this.minuteOf(from);
    const end = new Date((this.times[until] + this.step - SECONDS) * 1000).toISOString().slice(0, 16);
    const bar = document.querySelector(".brushed");
    bar.hidden = false;
    bar.querySelector(".from").textContent = `${clock(first)} to ${clock(end).slice(11)}`;
    bar.querySelector(".zoom").href = this.address(first, end);
    const query = new URLSearchParams({ what: "minutes", first_minute: clock(first), last_minute: clock(end) });
    bar.querySelector(".replay").href = `replay?${query}`;
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = this.at ?? this.times.length - 1;
    if (event.key === "Enter") this.open(at);
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(Math.max(at + step, 0), this.times.length - 1);
    const left = this.plot.valToPos(this.times[next], "x");
    this.plot.setCursor({ left, top: 10 });
  }
}

async function drawChart(figure) {
  const place = figure.querySelector(".chart");
  if (place === null) return;
  const answer = await fetch(figure.dataset.chart, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  figure.drawn = new MinutesChart(figure, await answer.json());
}

window.drawCharts = (root) => {
  const found = root.matches?.("[data-chart]") ? [root] : [...root.querySelectorAll("[data-chart]")];
  return Promise.all(found.map(drawChart));
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-scale]");
  if (button !== null) {
    Chart.scale = button.dataset.scale;
    for (const one of document.querySelectorAll("[data-scale]")) {
      one.setAttribute("aria-pressed", String(one === button));
    }
    document.querySelectorAll("[data-chart]").forEach((figure) => figure.drawn?.draw());
  }
  if (event.target.closest(".brushed .clear")) {
    event.target.closest(".brushed").hidden = true;
    const nothing = { left: 0, top: 0, width: 0, height: 0 };
    document.querySelectorAll("[data-chart]").forEach((figure) => figure.drawn?.plot.setSelect(nothing, false));
  }
});
