// SPDX-License-Identifier: MIT
// The report of gcpool-trace: draws what html.py has put into the element `data`.
(function () {
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
// From the top of the stack to its foot.
const KINDS = ["cached", "pending", "graph", "live"];
const COLOURS = ["#c3ccd5", "#e0a030", "#8a5fbf", "#2f6fb3"];
let device = data.devices.reduce((a, b) => (b.peak > a.peak ? b : a), data.devices[0] || null);
// report.html#4.2-4.6 shows these seconds first.
const asked = location.hash.match(/^#([\d.]+)-([\d.]+)$/);
let range = asked ? [Number(asked[1]), Number(asked[2])] : [0, data.seconds || 1e-6];
let fixed = null, hovered = null, cursor = null, plots = [];

// --- words ---------------------------------------------------------------------------

function bytes(count) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let unit = 0;
	while (Math.abs(count) >= 1024 && unit < units.length - 1) {
		count /= 1024;
		unit++;
	}
	return (unit ? count.toFixed(1) : String(Math.round(count))) + " " + units[unit];
}

// As many digits as tell two moments of the range that is shown apart.
function seconds(value) {
	const span = range[1] - range[0], [unit, factor] = span < 2e-3 ? ["us", 1e6] : span < 2 ? ["ms", 1e3] : ["s", 1];
	const digits = Math.min(6, Math.max(0, Math.ceil(3 - Math.log10(span * factor))));
	return parseFloat((value * factor).toFixed(digits)) + " " + unit;
}

function colour(name) {
	let hash = 7;
	for (const letter of data.names[name] || "")
		hash = (hash * 31 + letter.codePointAt(0)) % 3600;
	return `hsl(${hash % 360} ${45 + (hash % 3) * 12}% ${48 + (hash % 4) * 5}%)`;
}

function element(kind, text, style) {
	const made = document.createElement(kind);
	if (text !== undefined)
		made.textContent = text;
	if (style)
		made.className = style;
	return made;
}

// --- head ----------------------------------------------------------------------------

function headShow() {
	$("head").textContent = `${data.program} · process ${data.pid} on ${data.host} · ${seconds(data.seconds)} recorded`;
	for (const note of data.notes)
		$("notes").append(element("li", note));
	for (const [name, value] of data.facts) {
		const box = element("div");
		box.append(element("b", value), element("span", name));
		$("facts").append(box);
	}
	for (const one of data.devices) {
		const option = element("option", `${one.number} ${one.name}`);
		option.value = one.number;
		option.selected = one === device;
		$("device").append(option);
	}
	$("device").onchange = (event) => {
		device = data.devices.find((one) => one.number === Number(event.target.value));
		allShow();
	};
}

// --- curves --------------------------------------------------------------------------

function legendShow(id, labels, colours, values, shown) {
	const place = $(id);
	place.replaceChildren();
	labels.map((label, i) => [label, i]).reverse().forEach(([label, i]) => {
		const span = element("span");
		const mark = element("i");
		mark.style.background = colours[i];
		span.append(mark, `${label} ${values ? shown(values[i], i) : ""}`);
		place.append(span);
	});
}

function curveMake(id, rows, labels, colours, shown, more) {
	const legend = id + "-legend";
	legendShow(legend, labels, colours, null, shown);
	const plot = new Dygraph($(id), rows, Object.assign({
		labels: ["time", ...labels],
		colors: colours,
		legend: "never",
		dateWindow: range.slice(),
		strokeWidth: 1,
		axisLabelFontSize: 11,
		xRangePad: 0,
		axes: {
			x: { valueFormatter: seconds, axisLabelFormatter: (x) => seconds(x), pixelsPerLabel: 90 },
			y: { axisLabelFormatter: (y) => shown(y, 0), axisLabelWidth: 76, labelsKMG2: true },
		},
		highlightCallback(event, x, points, row) {
			const values = rows[row].slice(1);
			legendShow(legend, labels, colours, values, shown);
			$(legend).prepend(element("span", "at " + seconds(x)));
			cursorMove(x, plot);
		},
		unhighlightCallback() { cursorMove(null, plot); },
		zoomCallback(low, high) { rangeSet(low, high, plot); },
		underlayCallback: cursorDraw,
	}, more || {}));
	plots.push(plot);
	return plot;
}

function cursorDraw(context, area, plot) {
	if (cursor === null)
		return;
	const x = plot.toDomXCoord(cursor);
	context.strokeStyle = "#b03030";
	context.beginPath();
	context.moveTo(x, area.y);
	context.lineTo(x, area.y + area.h);
	context.stroke();
}

function cursorMove(x, from) {
	cursor = x;
	for (const plot of plots)
		if (plot !== from)
			plot.renderGraph_();
	mapDraw();
}

function rangeSet(low, high, from) {
	range = [low, high];
	for (const plot of plots)
		if (plot !== from)
			plot.updateOptions({ dateWindow: range.slice() });
	mapDraw();
}

// All areas at once, as steps: what Dygraphs fills between stacked curves that jump has gaps.
function areasDraw(event) {
	if (event.seriesIndex !== 0)
		return;
	const plot = event.dygraph, context = event.drawingContext, rows = device.curve;
	const x = (time) => plot.toDomXCoord(time), y = (value) => plot.toDomYCoord(value);
	const tops = rows.map(() => 0);
	[1, 2, 3, 4].forEach((column, i) => {
		context.beginPath();
		context.moveTo(x(rows[0][0]), y(tops[0]));
		const feet = tops.slice();
		rows.forEach((row, at) => {
			const next = rows[Math.min(at + 1, rows.length - 1)][0];
			tops[at] += row[column];
			context.lineTo(x(row[0]), y(tops[at]));
			context.lineTo(x(next), y(tops[at]));
		});
		for (let at = rows.length - 1; at >= 0; at--) {
			context.lineTo(x(rows[Math.min(at + 1, rows.length - 1)][0]), y(feet[at]));
			context.lineTo(x(rows[at][0]), y(feet[at]));
		}
		context.fillStyle = COLOURS[3 - i];
		context.fill();
	});
}

function memoryShow() {
	const rows = device.curve.map(([time, live, graph, pending, cached]) => [time, cached, pending, graph, live]);
	curveMake("memory", rows, KINDS, COLOURS, bytes, { stackedGraph: true, plotter: areasDraw });
}

function holesShow() {
	const rows = device.fragmentation.map(([time, free, largest]) => [time, free, largest]);
	if (rows.length)
		curveMake("holes", rows, ["not live", "largest hole"], ["#c3ccd5", "#b85c38"], bytes,
			{ fillGraph: true, fillAlpha: 0.25 });
}

function fencesShow() {
	const rows = data.fences.filter((row) => row[5] === device.number)
		.map(([time, freed, , wait]) => [time, freed, wait]);
	for (let i = 1; i < rows.length; i++)
		if (rows[i][0] <= rows[i - 1][0])
			rows[i][0] = rows[i - 1][0] + 1e-7;
	const shown = (value, i) => (value === null ? "-" : i === 0 ? bytes(value) : value.toFixed(3) + " ms");
	if (!rows.length) {
		$("fences").textContent = "No fence was recorded.";
		return;
	}
	curveMake("fences", rows, ["bytes behind the fence", "until it was ready"], ["#2f6fb3", "#e0a030"], shown, {
		drawPoints: true, pointSize: 2, strokeWidth: 0.6,
		series: { "until it was ready": { axis: "y2" } },
		axes: {
			x: { valueFormatter: seconds, axisLabelFormatter: (x) => seconds(x), pixelsPerLabel: 90 },
			y: { axisLabelFormatter: bytes, axisLabelWidth: 76 },
			y2: { axisLabelFormatter: (y) => y.toFixed(2) + " ms", axisLabelWidth: 70 },
		},
	});
}

// --- map of segments -----------------------------------------------------------------

const map = { rows: [], height: 0, drawn: [], left: 80, right: 5 };

function mapPrepare() {
	const segments = data.segments.filter((row) => row[4] === device.number);
	const places = new Map();
	for (const [addr, size] of segments)
		places.set(addr, Math.max(size, places.get(addr) || 0));
	let at = 0;
	map.rows = [...places].sort((a, b) => a[0] - b[0]).map(([addr, size]) => {
		const row = { addr, size, at };
		at += size;
		return row;
	});
	map.height = at || 1;
	map.segments = segments;
	map.blocks = data.blocks.filter((row) => row[8] === device.number);
}

function mapRow(addr) {
	let low = 0, high = map.rows.length - 1;
	while (low <= high) {
		const middle = (low + high) >> 1, row = map.rows[middle];
		if (addr < row.addr)
			high = middle - 1;
		else if (addr >= row.addr + row.size)
			low = middle + 1;
		else
			return row;
	}
	return null;
}

function mapScale() {
	const canvas = $("map"), ratio = window.devicePixelRatio || 1;
	const width = canvas.clientWidth, height = canvas.clientHeight;
	if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
		canvas.width = width * ratio;
		canvas.height = height * ratio;
	}
	const context = canvas.getContext("2d");
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	const area = plots.length ? plots[0].getArea() : { x: 80, w: width - 85 };
	map.left = area.x;
	map.right = Math.max(0, width - area.x - area.w);
	const inner = width - map.left - map.right, [low, high] = range;
	return {
		context, width, height,
		x: (time) => map.left + (time - low) / (high - low) * inner,
		time: (x) => low + (x - map.left) / inner * (high - low),
		y: (offset) => offset / map.height * (height - 20),
	};
}

function mapDraw() {
	if (!device || !map.rows.length)
		return;
	const { context, width, height, x, y } = mapScale();
	context.clearRect(0, 0, width, height);
	context.save();
	context.beginPath();
	context.rect(map.left, 0, width - map.left - map.right, height - 20);
	context.clip();
	context.fillStyle = "#e9edf1";
	for (const [addr, size, start, end] of map.segments) {
		const row = mapRow(addr);
		context.fillRect(x(start), y(row.at), Math.max(1, x(end === null ? data.seconds : end) - x(start)), Math.max(0.5, y(size) - 0.5));
	}
	map.drawn = [];
	for (const block of map.blocks) {
		const [addr, size, , start, end, name] = block;
		const row = mapRow(addr);
		if (!row || start > range[1] || (end !== null && end < range[0]))
			continue;
		const left = x(start), top = y(row.at + addr - row.addr);
		const box = [left, top, Math.max(1, x(end === null ? data.seconds : end) - left), Math.max(1, y(size))];
		map.drawn.push([box, block]);
		context.fillStyle = colour(name);
		context.fillRect(...box);
		if (block === fixed || block === hovered) {
			context.strokeStyle = "#000";
			context.strokeRect(...box);
		}
	}
	if (cursor !== null) {
		context.strokeStyle = "#b03030";
		context.beginPath();
		context.moveTo(x(cursor), 0);
		context.lineTo(x(cursor), height);
		context.stroke();
	}
	context.restore();
	mapAxes(context, width, height, x, y);
}

function mapAxes(context, width, height, x, y) {
	context.fillStyle = "#66707c";
	context.font = "11px system-ui, sans-serif";
	context.textAlign = "right";
	let last = -20;
	for (const row of map.rows) {
		const top = y(row.at);
		if (top - last < 14)
			continue;
		last = top;
		context.fillText(bytes(row.size), map.left - 6, top + 10);
	}
	context.textAlign = "center";
	for (let i = 0; i <= 6; i++) {
		const time = range[0] + (range[1] - range[0]) * i / 6;
		context.textAlign = i === 0 ? "left" : i === 6 ? "right" : "center";
		context.fillText(seconds(time), x(time), height - 5);
	}
}

function blockText(block) {
	const [addr, size, asked, start, end, name, graph, thread] = block;
	const life = end === null ? `${seconds(start)} to the end, never freed` : `${seconds(start)} to ${seconds(end)} (${seconds(end - start)})`;
	return `0x${addr.toString(16)}   ${bytes(size)}, ${asked.toLocaleString("en")} bytes asked for${graph ? ", of a graph" : ""}\n` +
		`${life}, thread ${data.threads[thread] || thread}\n${data.names[name]}`;
}

function blockUnder(event) {
	const box = $("map").getBoundingClientRect();
	const px = event.clientX - box.left, py = event.clientY - box.top;
	for (let i = map.drawn.length - 1; i >= 0; i--) {
		const [[left, top, w, h], block] = map.drawn[i];
		if (px >= left - 1 && px <= left + w + 1 && py >= top && py <= top + h)
			return block;
	}
	return null;
}

function mapListen() {
	const canvas = $("map");
	let down = null;
	canvas.onmousemove = (event) => {
		hovered = blockUnder(event);
		$("block").textContent = hovered || fixed ? blockText(hovered || fixed) : "";
		cursorMove(mapScale().time(event.offsetX), null);
	};
	canvas.onmouseleave = () => {
		hovered = null;
		cursorMove(null, null);
	};
	canvas.onmousedown = (event) => { down = event.offsetX; };
	canvas.onmouseup = (event) => {
		const scale = mapScale();
		if (down !== null && Math.abs(event.offsetX - down) > 8) {
			const ends = [scale.time(down), scale.time(event.offsetX)].sort((a, b) => a - b);
			rangeSet(Math.max(0, ends[0]), Math.min(data.seconds, ends[1]), null);
		} else {
			fixed = blockUnder(event);
			mapDraw();
		}
		down = null;
	};
	canvas.ondblclick = () => rangeSet(0, data.seconds, null);
	window.addEventListener("resize", mapDraw);
}

// --- tables --------------------------------------------------------------------------

function tableShow(id, columns, rows, sorted) {
	const table = $(id), head = element("tr");
	table.replaceChildren();
	columns.forEach(([name, , number], i) => {
		const cell = element("th", name + (i === sorted ? " ↓" : ""), number ? "number" : "");
		cell.onclick = () => tableShow(id, columns, rows, i);
		head.append(cell);
	});
	table.append(head);
	const key = columns[sorted][3] || ((row) => columns[sorted][1](row));
	for (const row of [...rows].sort((a, b) => (key(b) > key(a) ? 1 : key(b) < key(a) ? -1 : 0)).slice(0, 200)) {
		const line = element("tr");
		for (const [, shown, number, , mark] of columns) {
			const cell = element("td", undefined, number ? "number" : "site");
			if (mark) {
				const colourBox = element("i");
				colourBox.style.background = colour(mark(row));
				cell.append(colourBox);
			}
			cell.append(shown(row));
			line.append(cell);
		}
		table.append(line);
	}
}

function sitesShow() {
	const column = (name, i, shown) => [name, (row) => shown(row[i]), true, (row) => row[i]];
	const count = (value) => value.toLocaleString("en");
	tableShow("sites", [
		column("at the peak", 1, bytes), column("blocks then", 2, count), column("never freed", 3, bytes),
		column("allocations", 4, count), column("bytes in all", 5, bytes),
		["call site", (row) => data.names[row[0]], false, (row) => data.names[row[0]], (row) => row[0]],
	], data.sites, 0);
}

function livesShow() {
	const word = $("filter").value.toLowerCase();
	const blocks = data.blocks.filter((row) => row[8] === device.number && (!word ||
		data.names[row[5]].toLowerCase().includes(word) || ("0x" + row[0].toString(16)).includes(word)));
	$("lives-hint").textContent = `${blocks.length.toLocaleString("en")} of ${data.blocks_all.toLocaleString("en")} blocks: those that took most bytes for most time.`;
	const life = (row) => (row[4] === null ? data.seconds : row[4]) - row[3];
	tableShow("lives", [
		["size", (row) => bytes(row[1]), true, (row) => row[1]],
		["asked for", (row) => row[2].toLocaleString("en"), true, (row) => row[2]],
		["from", (row) => seconds(row[3]), true, (row) => row[3]],
		["held for", (row) => (row[4] === null ? "to the end" : seconds(life(row))), true, life],
		["address", (row) => "0x" + row[0].toString(16), true, (row) => row[0]],
		["call site", (row) => data.names[row[5]], false, (row) => data.names[row[5]], (row) => row[5]],
	], blocks, 3);
}

function allShow() {
	for (const plot of plots)
		plot.destroy();
	plots = [];
	memoryShow();
	mapPrepare();
	mapDraw();
	holesShow();
	fencesShow();
	livesShow();
}

headShow();
sitesShow();
if (device) {
	mapListen();
	$("filter").oninput = livesShow;
	allShow();
}
document.documentElement.dataset.ready = "yes";
})();
