/* The runs of a folder: their history, their table, and two of them beside each other. */
(function () {
  var data = page.data, make = page.make, html = page.html, rounded = page.rounded;
  var runs = data.runs, chosen = [], again = [];
  /* Charts, and rows that a click adds. */
  var MOST_CHARTS = 12, ROWS = 200;

  /* What the runs differ in, so that their rates are of different things. */
  function differs(field) {
    return runs.some(function (run) { return run[field] !== runs[0][field]; });
  }
  var by_backend = differs("backend"), by_threads = differs("threads");
  function on(run) {
    return [by_backend && run.backend && run.backend.replace(/, CPU$/, ""), by_threads && run.threads && run.threads + (run.threads === 1 ? " thread" : " threads")].filter(Boolean).join(", ");
  }
  runs.forEach(function (run, index) {
    run.index = index;
    run.ms = Date.parse(run.created);
    run.series = [run.model || run.imported_from || "model unknown", run.quantization].filter(Boolean).join(" ");
    if (on(run)) run.series += ", " + on(run);
    run.words = [run.name, run.series, run.tag].filter(Boolean).join(" ").toLowerCase();
  });
  function when(time) { return time.slice(0, 16).replace("T", " "); }
  /* As many digits as `brickscope ls` prints. */
  function digits(value) { var size = Math.abs(value); return size < 10 ? 2 : size < 100 ? 1 : 0; }
  function number(parent, value, from, per, places, unit) {
    var text = (value / per).toFixed(places).replace("-", "−") + unit;
    var element = html("data", { value: value, "data-from": from }, parent, text);
    if (per !== 1) element.setAttribute("data-per", per);
  }
  /* A rate that leaves out disturbed passes is no figure to hold against one of all passes. */
  var CLEAN = "without disturbed passes, which took more than a small part of the time";
  function clean(run) { return run.rate_of === "clean"; }
  function rate(parent, run) {
    var value = run.decode_tokens_per_second;
    if (value === undefined) html("span", { class: "absent", title: run.no_rate || "" }, parent, "-");
    else number(parent, value, "/runs/" + run.index + "/decode_tokens_per_second", 1, digits(value), "");
    if (clean(run)) html("span", { title: CLEAN }, parent, "*");
    if (run.processes && value !== undefined) html("span", { title: "the median of its processes" }, parent, " median");
  }
  function disturbed(parent, run) {
    var at = "/runs/" + run.index + "/passes/";
    if (!run.passes || run.passes.disturbed === undefined) { html("span", { class: "absent" }, parent, "-"); return; }
    number(parent, run.passes.disturbed, at + "disturbed", 1, 0, "");
    parent.appendChild(document.createTextNode(" of "));
    number(parent, run.passes.all, at + "all", 1, 0, "");
  }
  function size(parent, run) {
    var units = [[1e9, " GB", 999.5e6], [1e6, " MB", 999500], [1e3, " kB", 1000], [1, " B", 0]];
    var unit = units.filter(function (of) { return run.bytes >= of[2]; })[0], shown = run.bytes / unit[0];
    number(parent, run.bytes, "/runs/" + run.index + "/bytes", unit[0], unit[0] > 1 && shown < 9.95 ? 1 : 0, unit[1]);
  }
  function name(parent, run) {
    if (run.link) html("a", { href: run.link }, parent, run.name);
    else html("span", {}, parent, run.name);
  }
  function choose(run) {
    var at = chosen.indexOf(run);
    if (at >= 0) chosen.splice(at, 1); else chosen.push(run);
    if (chosen.length > 2) chosen.shift();
    again.forEach(function (draw) { draw(); });
  }
  /* The older of the two that are chosen is A. */
  function letter(run) {
    if (chosen.indexOf(run) < 0) return "";
    var other = chosen[1 - chosen.indexOf(run)];
    return other && other.index > run.index ? "B" : "A";
  }

  /* What is filtered. */
  var place = document.querySelector("[data-history]");
  var filter = html("div", { class: "choice" }, place);
  var words = html("input", { type: "search", placeholder: "Name, model or tag", "aria-label": "Runs with these words" }, filter);
  var series = html("select", { "aria-label": "Model, quantisation, engine and threads" }, filter);
  var label = html("label", {}, filter);
  var tagged = html("input", { type: "checkbox" }, label);
  label.appendChild(document.createTextNode(" with a tag"));
  var all = Object.create(null), names = [];
  runs.forEach(function (run) {
    if (!all[run.series]) { all[run.series] = true; names.push(run.series); }
  });
  html("option", { value: "" }, series, "all models");
  names.forEach(function (of, index) { html("option", { value: index + 1 }, series, of); });
  function shown() {
    var parts = words.value.toLowerCase().split(/\s+/).filter(Boolean), of = series.value === "" ? null : names[series.value - 1];
    return runs.filter(function (run) {
      return (of === null || run.series === of) && (!tagged.checked || run.tag) &&
        parts.every(function (part) { return run.words.indexOf(part) >= 0; });
    });
  }

  /* Steps of an axis of time. */
  var HOUR = 36e5, DAY = 24 * HOUR;
  var STEPS = [1e3, 5e3, 15e3, 6e4, 3e5, 9e5, 18e5, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 182 * DAY, 365 * DAY];
  function chart(figure, title, points) {
    html("figcaption", {}, figure, title);
    var svg = make("svg", { role: "img", "aria-label": title + ": the table below has its numbers" }, figure);
    var told = html("p", { class: "detail" }, figure);
    var w = Math.max(figure.clientWidth, 240), LEFT = 56, TOP = 26, FLOOR = 176, RIGHT = w - 12;
    svg.setAttribute("viewBox", "0 0 " + w + " 222");
    svg.style.height = "222px";
    var rates = points.map(function (run) { return run.decode_tokens_per_second; });
    var least = rates.reduce(function (a, b) { return Math.min(a, b); }), most = rates.reduce(function (a, b) { return Math.max(a, b); });
    /* Beginning at nothing where the rates differ much; else only their range. */
    var step = rounded(Math.max(most - least, most * 0.02, 1e-9) / 3);
    var from = least < most * 0.4 ? 0 : Math.max(0, Math.floor(least / step - 0.2) * step), to = Math.ceil(most / step + 0.2) * step;
    step = rounded((to - from) / 4);
    var times = points.map(function (run) { return run.ms; });
    var first = times.reduce(function (a, b) { return Math.min(a, b); }), last = times.reduce(function (a, b) { return Math.max(a, b); });
    if (first === last) { first -= HOUR / 2; last += HOUR / 2; }
    function x(ms) { return LEFT + 8 + (RIGHT - LEFT - 16) * (ms - first) / (last - first); }
    function y(value) { return FLOOR - (FLOOR - TOP) * (value - from) / (to - from); }
    function text(at_x, at_y, anchor, what, of) { make("text", { class: of || "", x: at_x.toFixed(1), y: at_y, "text-anchor": anchor }, svg).textContent = what; }
    var places = Math.min(Math.max(0, Math.ceil(-Math.log(step) / Math.LN10 - 1e-9)), 9);
    for (var n = Math.ceil(from / step - 1e-9), left = 20; n * step <= to * (1 + 1e-9) && left > 0; n++, left--) {
      make("line", { class: n === 0 ? "axis" : "grid", x1: LEFT, x2: RIGHT, y1: y(n * step), y2: y(n * step) }, svg);
      text(LEFT - 6, y(n * step) + 4, "end", (n * step).toFixed(places));
    }
    text(0, 12, "start", "tokens/s");
    var room = Math.max(Math.floor((RIGHT - LEFT) / 130), 1);
    var span = STEPS.filter(function (of) { return (last - first) / of <= room; })[0] || Math.ceil((last - first) / room / DAY) * DAY;
    for (var at = Math.ceil(first / span) * span, more = 30; at <= last && more > 0; at += span, more--) {
      make("line", { class: "axis", x1: x(at), x2: x(at), y1: FLOOR, y2: FLOOR + 4 }, svg);
      var iso = new Date(at).toISOString();
      text(Math.min(Math.max(x(at), 40), RIGHT - 36), FLOOR + 18, "middle", span >= DAY ? iso.slice(0, 10) : span < 6e4 ? iso.slice(11, 19) : iso.slice(5, 16).replace("T", " "));
    }
    text(RIGHT, FLOOR + 40, "end", "when, UTC");
    make("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: FLOOR, y2: FLOOR }, svg);
    var at_x = points.map(function (run) { return x(run.ms); }), at_y = rates.map(y);
    /* One element, however many runs there are. */
    make("path", { class: points.length > 600 ? "dots many" : "dots", d: points.map(function (run, nth) { return "M" + at_x[nth].toFixed(1) + " " + at_y[nth].toFixed(1) + "h0"; }).join("") }, svg);
    var ends = [];
    points.forEach(function (run, nth) {
      if (!run.tag) return;
      make("circle", { class: "tagged", cx: at_x[nth].toFixed(1), cy: at_y[nth].toFixed(1), r: 5 }, svg);
      var wide = run.tag.length * 7 / 2, middle = Math.min(Math.max(at_x[nth], LEFT + wide), RIGHT - wide), up = at_y[nth] - 9;
      if (run.tag.length > 24 || ends.some(function (end) { return Math.abs(end[0] - middle) < end[2] + wide + 6 && Math.abs(end[1] - up) < 14; })) return;
      ends.push([middle, up, wide]);
      text(middle, up.toFixed(1), "middle", run.tag, "tag");
    });
    var marks = make("g", {}, svg);
    function mark() {
      while (marks.firstChild) marks.removeChild(marks.firstChild);
      points.forEach(function (run, nth) {
        if (!letter(run)) return;
        var point = make("g", { class: "point c-chosen" }, marks);
        make("circle", { cx: at_x[nth].toFixed(1), cy: at_y[nth].toFixed(1), r: 9 }, point);
        make("text", { x: at_x[nth].toFixed(1), y: (at_y[nth] + 3.5).toFixed(1), "text-anchor": "middle" }, point).textContent = letter(run);
      });
    }
    function nearest(event) {
      var box = svg.getBoundingClientRect(), left = event.clientX - box.left, top = event.clientY - box.top, best = null, apart = 900;
      points.forEach(function (run, nth) {
        var d = Math.pow(at_x[nth] - left, 2) + Math.pow(at_y[nth] - top, 2);
        if (d < apart) { apart = d; best = run; }
      });
      return best;
    }
    svg.addEventListener("mousemove", function (event) {
      var run = nearest(event);
      while (told.firstChild) told.removeChild(told.firstChild);
      if (!run) return;
      html("b", {}, told, run.name);
      told.appendChild(document.createTextNode(" " + (run.tag ? run.tag + ", " : "") + when(run.created) + ", "));
      rate(told, run);
      told.appendChild(document.createTextNode(" tokens/s"));
    });
    svg.addEventListener("click", function (event) { var run = nearest(event); if (run) choose(run); });
    mark();
    return mark;
  }
  var charts = html("div", { class: "charts" }, place), more_charts = html("p", { class: "note" }, place), marks = [];
  function history(of) {
    charts.textContent = more_charts.textContent = "";
    var by = new Map();
    of.forEach(function (run) {
      if (run.decode_tokens_per_second === undefined || isNaN(run.ms)) return;
      var of_passes = run.series + (clean(run) ? ", without disturbed passes" : "");
      if (!by.has(of_passes)) by.set(of_passes, []);
      by.get(of_passes).push(run);
    });
    var most = Array.from(by).sort(function (a, b) { return b[1].length - a[1].length; });
    most = most.map(function (one, nth) { return nth < MOST_CHARTS ? one.concat(html("figure", { class: "series" }, charts)) : one; });
    /* When all are there, each is as wide as it stays. */
    marks = most.slice(0, MOST_CHARTS).map(function (one) { return chart(one[2], one[0], one[1]); });
    if (most.length > MOST_CHARTS) more_charts.textContent = "These models have the most runs; choose another one above.";
    if (most.length === 0) more_charts.textContent = "No run here has a rate of decoded tokens.";
  }
  again.push(function () { marks.forEach(function (mark) { mark(); }); });

  /* The table. */
  var list = document.querySelector("[data-runs]"), boxes = new Map();
  var scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, list);
  var table = html("table", { class: "runs" }, scroll), row = html("tr", {}, html("thead", {}, table));
  var columns = [["", 0], ["Run", 0], ["Tag", 0], ["tokens/s", 1], ["Model", 0], ["Disturbed passes", 1], ["When, UTC", 0], ["Size", 1]];
  columns.forEach(function (of) { html("th", of[1] ? { scope: "col", class: "n" } : { scope: "col" }, row, of[0]); });
  var body = html("tbody", {}, table), next = html("button", { type: "button" }, list, "More runs"), here = [], end = 0;
  function more() {
    here.slice(end, end + ROWS).forEach(function (run) {
      var row = html("tr", {}, body), box = html("input", { type: "checkbox", "aria-label": "Choose " + run.name }, html("td", {}, row));
      box.checked = chosen.indexOf(run) >= 0;
      box.addEventListener("change", function () { choose(run); });
      boxes.set(run, box);
      name(html("th", { scope: "row" }, row), run);
      html("td", { class: "tag" }, row, run.tag || "");
      rate(html("td", { class: "n" }, row), run);
      html("td", { class: "model" }, row, run.series + (run.model && run.imported_from ? " (" + run.imported_from + ")" : ""));
      disturbed(html("td", { class: "n" }, row), run);
      html("td", { class: "when" }, row, when(run.created));
      size(html("td", { class: "n" }, row), run);
    });
    end = Math.min(end + ROWS, here.length);
    next.hidden = end === here.length;
  }
  next.addEventListener("click", more);
  if (runs.some(clean)) html("p", { class: "note" }, list, "* " + CLEAN);
  again.push(function () { boxes.forEach(function (box, run) { box.checked = chosen.indexOf(run) >= 0; }); });

  /* Two of them. */
  var beside = document.querySelector("[data-compare]");
  function word(text) { return /^[\w.\/@%+=:,-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'"; }
  function compare() {
    beside.textContent = "";
    beside.closest("section").classList.toggle("chosen", chosen.length > 0);
    if (chosen.length < 2) {
      html("p", { class: "reason" }, beside, chosen.length === 1 ? chosen[0].name + " is chosen; choose another one." : "Choose two runs, in the table or in a chart.");
      return;
    }
    var two = chosen.slice().sort(function (a, b) { return b.index - a.index; });
    var scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Two runs" }, beside);
    var table = html("table", {}, scroll), head = html("tr", {}, html("thead", {}, table));
    ["", "A", "B", "B − A"].forEach(function (text, nth) { html("th", nth ? { scope: "col", class: "n" } : { scope: "col" }, head, text); });
    var body = html("tbody", {}, table);
    function line(title, fill, difference) {
      var row = html("tr", {}, body);
      html("th", { scope: "row" }, row, title);
      two.forEach(function (run) { fill(html("td", { class: "n" }, row), run); });
      var cell = html("td", { class: "n" }, row);
      if (difference) difference(cell);
    }
    function plain(of) { return function (cell, run) { cell.textContent = of(run) || "-"; }; }
    line("Run", name);
    line("Tag", plain(function (run) { return run.tag; }));
    line("Made, UTC", plain(function (run) { return when(run.created); }));
    line("Model", plain(function (run) { return run.model || run.imported_from; }));
    line("Quantisation", plain(function (run) { return run.quantization; }));
    line("On", plain(function (run) { return [run.backend, run.threads && run.threads + (run.threads === 1 ? " thread" : " threads")].filter(Boolean).join(", "); }));
    line("Decoded tokens/s", rate, function (cell) {
      var a = two[0].decode_tokens_per_second, b = two[1].decode_tokens_per_second;
      if (a === undefined || b === undefined || clean(two[0]) !== clean(two[1])) return;
      var at = function (run) { return "/runs/" + run.index + "/decode_tokens_per_second"; };
      number(cell, b - a, JSON.stringify(["sub", at(two[1]), at(two[0])]), 1, digits(b - a), "");
      if (b > a) cell.firstChild.textContent = "+" + cell.firstChild.textContent;
    });
    line("Disturbed passes", disturbed);
    line("Size", size);
    if (clean(two[0]) !== clean(two[1])) html("p", { class: "note" }, beside, "One rate is of all passes, the other (*) " + CLEAN + ": they have no difference.");
    if (two[0].series !== two[1].series) html("p", { class: "note" }, beside, "They are of different models, quantisations, engines or threads.");
    var paths = two.map(function (run) { return word(data.folder.replace(/\/+$/, "") + "/" + run.name); }).join(" ");
    html("p", { class: "note" }, beside, "Brick by brick: ").appendChild(html("code", {}, null, "brickscope report " + paths));
    var clear = html("button", { type: "button" }, beside, "Choose none");
    clear.addEventListener("click", function () { chosen = []; again.forEach(function (draw) { draw(); }); });
  }
  again.push(compare);

  function filtered() {
    here = shown();
    end = 0;
    body.textContent = "";
    boxes.clear();
    more();
    history(here);
  }
  var typed;
  words.addEventListener("input", function () { clearTimeout(typed); typed = setTimeout(filtered, 120); });
  [series, tagged].forEach(function (input) { input.addEventListener("change", filtered); });
  var wide = 0;
  if (window.ResizeObserver) {
    new ResizeObserver(function () {
      if (Math.abs(place.clientWidth - wide) > 1) { wide = place.clientWidth; history(here); }
    }).observe(place);
  }
  wide = place.clientWidth;
  filtered();
  compare();
})();
