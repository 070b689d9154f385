// SPDX-License-Identifier: MIT
// The report of gcpool-trace: draws what html.py has put into the element `data`.
(function () {
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const LEFT = 84, RIGHT = 12, FOOT = 20; // around the area of a panel
let device = data.devices.reduce((a, b) => (b.peak > a.peak ? b : a), data.devices[0] || null);
// report.html#4.2-4.6 shows these seconds first.
const asked = location.hash.match(/^#([\d.]+)-([\d.]+)$/);
let range = asked && Number(asked[1]) < Number(asked[2]) ? asked.slice(1).map(Number) : data.window;
const panels = [];

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

// In one unit for the whole range, with the digits that tell moments `step` apart.
function seconds(value, step) {
	const [unit, factor] = range[1] < 1e-3 ? ["us", 1e6] : range[1] < 1 ? ["ms", 1e3] : ["s", 1];
	const digits = Math.ceil(-Math.log10((step || (range[1] - range[0]) / 1000) * factor) - 1e-9);
	return (value * factor).toFixed(Math.min(7, Math.max(0, digits))) + " " + unit;
}

function duration(value) {
	const [unit, factor] = value > 0 && value < 1e-3 ? ["us", 1e6] : value < 1 ? ["ms", 1e3] : ["s", 1];
	return parseFloat((value * factor).toPrecision(4)) + " " + unit;
}

const count = (value) => value.toLocaleString("en");
const hex = (address) => "0x" + address.toString(16);
const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name);

function colour(name) {
	let hash = 7;
	for (const letter of data.names[name] || "")
		hash = (hash * 31 + letter.codePointAt(0)) % 3600;
	return `hsl(${hash % 360} ${40 + (hash % 3) * 9}% ${48 + (hash % 4) * 5}%)`;
}

function element(kind, text, style) {
	const made = document.createElement(kind);
	if (text !== undefined)
		made.textContent = text;
	if (style)
		made.className = style;
	return made;
}

// 0, and steps of 1, 2 or 5 times a power of ten; of a power of 1024 for bytes.
function ticks(low, high, most, binary) {
	let unit = 1;
	while (binary && high / unit >= 1024)
		unit *= 1024;
	const least = (high - low) / unit / most, power = 10 ** Math.floor(Math.log10(least));
	const step = unit * power * [1, 2, 5, 10].find((times) => times * power >= least * 0.999);
	const found = [];
	for (let at = Math.ceil(low / step); at * step <= high; at++)
		found.push(at * step);
	return [found, step];
}

// --- panels: drawings over the seconds of `range` ------------------------------------------

// make.axis(view) draws at the left of the area and gives it a scale, make.draw(view) inside of
// it; make.hover(time, y, view) says what is under the mouse, with null nothing.
function panelMake(place, make) {
	const canvas = element("canvas"), cursor = element("i", "", "cursor"), chosen = element("i", "", "chosen");
	place.replaceChildren(canvas, cursor, chosen);
	const panel = Object.assign({ place, canvas, cursor }, make);
	const inside = (x) => Math.min(Math.max(x, LEFT), canvas.clientWidth - RIGHT);
	let down = null;
	canvas.onmousemove = (event) => {
		const x = inside(event.offsetX);
		cursorMove(panel.view.time(x));
		panel.hover(panel.view.time(x), event.offsetY, panel.view);
		chosen.style.display = down === null ? "none" : "block";
		chosen.style.left = Math.min(x, down) + "px";
		chosen.style.width = Math.abs(x - down) + "px";
	};
	canvas.onmouseleave = () => {
		down = null;
		chosen.style.display = "none";
		cursorMove(null);
		panel.hover(null);
	};
	canvas.onmousedown = (event) => { down = inside(event.offsetX); };
	canvas.onmouseup = (event) => {
		const ends = [down, inside(event.offsetX)].sort((a, b) => a - b);
		chosen.style.display = "none";
		if (down !== null && ends[1] - ends[0] > 8)
			rangeSet(ends.map(panel.view.time));
		else if (panel.click)
			panel.click();
		down = null;
	};
	canvas.ondblclick = () => rangeSet(data.window);
	panels.push(panel);
}

function panelDraw(panel) {
	const { canvas } = panel, ratio = window.devicePixelRatio || 1;
	const width = canvas.clientWidth, height = canvas.clientHeight, inner = width - LEFT - RIGHT;
	const context = canvas.getContext("2d"), [low, high] = range;
	canvas.width = width * ratio;
	canvas.height = height * ratio;
	context.scale(ratio, ratio);
	context.font = "11px system-ui, sans-serif";
	const view = panel.view = {
		context, width, foot: height - FOOT,
		x: (time) => LEFT + (time - low) / (high - low) * inner,
		time: (x) => low + (x - LEFT) / inner * (high - low),
	};
	const [times, step] = ticks(low, high, inner / 110);
	context.textAlign = "center";
	for (const time of times) {
		line(view, view.x(time), 0, view.x(time), view.foot + 4);
		context.fillStyle = theme("faint");
		if (view.x(time) < width - 24)
			context.fillText(seconds(time, step), view.x(time), height - 4);
	}
	context.textAlign = "right";
	panel.axis(view);
	context.save();
	context.beginPath();
	context.rect(LEFT, 0, inner, view.foot + 1);
	context.clip();
	panel.draw(view);
	context.restore();
}

function line({ context }, ...ends) {
	const [left, top, right, bottom] = ends.map((value) => Math.round(value) + 0.5);
	context.strokeStyle = theme("line");
	context.beginPath();
	context.moveTo(left, top);
	context.lineTo(right, bottom);
	context.stroke();
}

function cursorMove(time) {
	for (const { cursor, view } of panels) {
		cursor.style.display = time === null ? "none" : "block";
		cursor.style.left = (time === null ? 0 : view.x(time)) + "px";
	}
}

function rangeSet(ends) {
	range = ends;
	$("all").hidden = range === data.window;
	cursorMove(null);
	panels.forEach(panelDraw);
}

// --- curves --------------------------------------------------------------------------

// The row at a moment: the last one that begins before it.
function rowAt(rows, time) {
	let low = 0, high = rows.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (rows[middle][0] <= time)
			low = middle + 1;
		else
			high = middle;
	}
	return Math.max(0, low - 1);
}

// series: [name, column, colour]; areas, of which the first is the lowest, or points. A click on a
// name in the legend hides it.
function curveMake(id, rows, series, points, shown) {
	const hidden = new Set(), legend = $(id + "-legend");
	const open = () => series.filter(([name]) => !hidden.has(name));

	function legendShow(row) {
		legend.replaceChildren(...series.map(([name, column, tone]) => {
			const button = element("button", "", hidden.has(name) ? "off" : ""), mark = element("i");
			mark.style.background = `var(--${tone})`;
			button.append(mark, name, row ? " " + shown(row[column]) : "");
			button.onclick = () => {
				hidden.delete(name) || hidden.add(name);
				legendShow(null);
				panels.forEach(panelDraw);
			};
			return button;
		}), element("span", row ? "at " + seconds(row[0]) : ""));
	}

	function axis(view) {
		const first = rowAt(rows, range[0]), last = rowAt(rows, range[1]);
		let top = 0;
		for (const row of rows.slice(first, last + 1))
			top = Math.max(top, open().reduce((sum, [, column]) => sum + (row[column] || 0), 0));
		top = top * 1.06 || 1;
		view.rows = rows.slice(first, last + 2);
		view.y = (value) => view.foot - value / top * (view.foot - 8);
		for (const value of ticks(0, top, view.foot / 45, shown === bytes)[0]) {
			line(view, LEFT, view.y(value), view.width - RIGHT, view.y(value));
			view.context.fillStyle = theme("faint");
			view.context.fillText(shown(value), LEFT - 8, view.y(value) + 4);
		}
	}

	// Values stay until the next row: an outline of steps, forth along tops and back along feet.
	function area(view, tops, feet) {
		const { context, x, y, rows: seen } = view;
		const end = (at) => x(at + 1 < seen.length ? seen[at + 1][0] : range[1]);
		context.beginPath();
		tops.forEach((top, at) => {
			context.lineTo(x(seen[at][0]), y(top));
			context.lineTo(end(at), y(top));
		});
		for (let at = tops.length - 1; at >= 0; at--) {
			context.lineTo(end(at), y(feet[at]));
			context.lineTo(x(seen[at][0]), y(feet[at]));
		}
		context.fill();
	}

	function draw(view) {
		const { context, x, y, rows: seen } = view;
		let feet = seen.map(() => 0);
		for (const [, column, tone] of open()) {
			context.fillStyle = theme(tone);
			if (points) {
				for (const row of seen)
					if (row[column] !== null)
						context.fillRect(x(row[0]) - 1, y(row[column]) - 1.5, 3, 3);
				continue;
			}
			const tops = seen.map((row, at) => row[column] + feet[at]);
			area(view, tops, feet);
			feet = tops;
		}
	}

	legendShow(null);
	panelMake($(id), {
		axis, draw,
		hover: (time) => legendShow(time === null ? null : rows[rowAt(rows, time)]),
	});
}

// --- map of segments -----------------------------------------------------------------

function mapMake() {
	const segments = data.segments.filter((row) => row[4] === device.number);
	const blocks = data.blocks.filter((row) => row[8] === device.number);
	const outline = element("i", "", "outline");
	let height = 0, drawn = [], hovered = null, fixed = null;
	const sizes = new Map();
	for (const [addr, size] of segments)
		sizes.set(addr, Math.max(size, sizes.get(addr) || 0));
	const rows = [...sizes].sort((a, b) => a[0] - b[0]).map(([addr, size]) => [addr, size, (height += size) - size]);
	const last = (end) => (end === null ? data.seconds : end);

	function axis(view) {
		view.y = (offset) => offset / (height || 1) * view.foot;
		view.context.fillStyle = theme("faint");
		let before = -20, words = "";
		for (const [, size, at] of rows) {
			if (bytes(size) === words || view.y(at) - before < 14 || view.y(at) + 10 > view.foot)
				continue;
			words = bytes(size);
			before = view.y(at);
			view.context.fillText(words, LEFT - 8, before + 10);
		}
	}

	function draw({ context, x, y }) {
		const box = (start, end, at, size, least) => [x(start), y(at), Math.max(1, x(last(end)) - x(start)), Math.max(least, y(size) - 0.5)];
		const row = (addr) => rows[rowAt(rows, addr)];
		const seen = (start, end) => start <= range[1] && last(end) >= range[0];
		context.fillStyle = theme("segment");
		for (const [addr, size, start, end] of segments)
			if (seen(start, end))
				context.fillRect(...box(start, end, row(addr)[2], size, 0.5));
		drawn = [];
		for (const block of blocks) {
			const [addr, size, , start, end, name] = block;
			if (!rows.length || !seen(start, end) || addr < row(addr)[0])
				continue;
			const place = box(start, end, row(addr)[2] + addr - row(addr)[0], size, 1);
			drawn.push([place, block]);
			context.fillStyle = colour(name);
			context.fillRect(...place);
		}
		outlineShow();
	}

	function outlineShow() {
		const found = drawn.find(([, block]) => block === (hovered || fixed));
		outline.style.display = found ? "block" : "none";
		if (found)
			["left", "top", "width", "height"].forEach((side, i) => { outline.style[side] = found[0][i] + "px"; });
	}

	function text([addr, size, requested, start, end, name, graph, thread]) {
		const life = end === null ? `${seconds(start)} to the end, never freed` : `${seconds(start)} to ${seconds(end)} (${duration(end - start)})`;
		return `${hex(addr)}   ${bytes(size)}, ${count(requested)} bytes asked for${graph ? ", of a graph" : ""}\n` +
			`${life}, thread ${data.threads[thread] || thread}\n${data.names[name]}`;
	}

	function hover(time, py, view) {
		const px = time === null ? 0 : view.x(time);
		const found = time === null ? null : drawn.findLast(([[left, top, w, h]]) =>
			px >= left - 1 && px <= left + w + 1 && py >= top && py <= top + h);
		hovered = found ? found[1] : null;
		$("block").textContent = hovered || fixed ? text(hovered || fixed) : "";
		outlineShow();
	}

	$("map-count").textContent = blocks.length < data.blocks_all && data.blocks.length < data.blocks_all
		? `Drawn: ${count(data.blocks.length)} of ${count(data.blocks_all)} blocks, those with most bytes for most time, and of each stretch of time the largest that begin there.`
		: `All ${count(blocks.length)} blocks are drawn.`;
	panelMake($("map"), { axis, draw, hover, click: () => { fixed = hovered; } });
	$("map").append(outline);
}

// --- tables --------------------------------------------------------------------------

// columns: [name, text of a row, value of a row, site of a row]
function tableShow(id, columns, rows, sorted) {
	const table = $(id), head = element("tr");
	columns.forEach(([name, , , site], i) => {
		const cell = element("th", name + (i === sorted ? " ↓" : ""), site ? "" : "number");
		cell.onclick = () => tableShow(id, columns, rows, i);
		head.append(cell);
	});
	table.replaceChildren(head);
	const key = columns[sorted][2];
	for (const row of [...rows].sort((a, b) => (key(b) > key(a) ? 1 : key(b) < key(a) ? -1 : 0)).slice(0, 200)) {
		const made = element("tr");
		for (const [, text, , site] of columns) {
			const cell = element("td", "", site ? "site" : "number"), mark = element("i");
			mark.style.background = site ? colour(site(row)) : "";
			cell.append(...(site ? [mark] : []), text(row));
			made.append(cell);
		}
		table.append(made);
	}
}

function siteColumn(index) {
	const name = (row) => data.names[row[index]];
	return ["call site", name, name, (row) => row[index]];
}

function sitesShow() {
	const column = (name, i, shown) => [name, (row) => shown(row[i]), (row) => row[i]];
	tableShow("sites", [
		column("at the peak", 1, bytes), column("blocks then", 2, count), column("never freed", 3, bytes),
		column("allocations", 4, count), column("bytes in all", 5, bytes), siteColumn(0),
	], data.sites, 0);
}

function livesShow() {
	const word = $("filter").value.toLowerCase();
	const blocks = data.blocks.filter((row) => row[8] === device.number &&
		(data.names[row[5]].toLowerCase().includes(word) || hex(row[0]).includes(word)));
	$("lives-hint").textContent = `${count(blocks.length)} of ${count(data.blocks_all)} blocks, the first 200 of them by the column that is clicked.`;
	const life = (row) => (row[4] === null ? data.seconds : row[4]) - row[3];
	tableShow("lives", [
		["size", (row) => bytes(row[1]), (row) => row[1]],
		["asked for", (row) => count(row[2]), (row) => row[2]],
		["from", (row) => seconds(row[3]), (row) => row[3]],
		["held for", (row) => (row[4] === null ? "to the end" : duration(life(row))), life],
		["address", (row) => hex(row[0]), (row) => row[0]],
		siteColumn(5),
	], blocks, 3);
}

// --- the page ------------------------------------------------------------------------

function headShow() {
	const [first, last] = data.window, part = first > 0 || last < data.seconds;
	$("head").textContent = `${data.program} · process ${data.pid} on ${data.host} · ${duration(data.seconds)} recorded` +
		(part ? `, shown from ${seconds(first)} to ${seconds(last)}` : "");
	$("notes").append(...data.notes.map((note) => element("li", note)));
	for (const [name, value] of data.facts) {
		const box = element("div");
		box.append(element("b", value), element("span", name));
		$("facts").append(box);
	}
	for (const one of data.devices)
		$("device").append(new Option(`${one.number} ${one.name}`, one.number, false, one === device));
	$("device").onchange = (event) => {
		device = data.devices.find((one) => one.number === Number(event.target.value));
		allShow();
	};
	$("all").onclick = () => rangeSet(data.window);
	$("filter").oninput = livesShow;
}

function allShow() {
	const fences = data.fences.filter((row) => row[4] === device.number);
	panels.length = 0;
	curveMake("memory", device.curve, [["live", 1, "live"], ["graph", 2, "graph"], ["pending", 3, "pending"], ["cached", 4, "cached"]], false, bytes);
	mapMake();
	curveMake("fences", fences, [["bytes behind the fence", 1, "live"]], true, bytes);
	curveMake("waits", fences, [["until it was ready", 3, "pending"]], true, (ms) => (ms === null ? "-" : duration(ms / 1e3)));
	livesShow();
	rangeSet(range);
}

headShow();
sitesShow();
if (device) {
	allShow();
	for (const [target, what] of [[window, "resize"], [matchMedia("(prefers-color-scheme: dark)"), "change"]])
		target.addEventListener(what, () => panels.forEach(panelDraw));
}
document.documentElement.dataset.ready = "yes";
})();
