/* The diagrams of a run. */
(function () {
  var data = page.data, make = page.make, html = page.html, rounded = page.rounded;

  /* Formats a time as in the tables. */
  function time(ns) {
    var size = Math.abs(ns), per = 1, unit = " ns";
    if (size >= 1e9) { per = 1e9; unit = " s"; }
    else if (size >= 1e6) { per = 1e6; unit = " ms"; }
    else if (size >= 1e3) { per = 1e3; unit = " µs"; }
    var shown = size / per;
    var digits = per === 1 ? 0 : shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0;
    return (ns < 0 ? "−" : "") + shown.toFixed(digits) + unit;
  }
  /* A time at an axis that ends at `end`. */
  function tick(ns, step, end) {
    var per = 1, unit = " ns";
    if (end >= 1e9) { per = 1e9; unit = " s"; }
    else if (end >= 1e6) { per = 1e6; unit = " ms"; }
    else if (end >= 1e3) { per = 1e3; unit = " µs"; }
    var digits = Math.max(0, Math.ceil(-Math.log(step / per) / Math.LN10 - 1e-9));
    return (ns / per).toFixed(digits) + unit;
  }
  function percent(part, whole) {
    return whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "n/a";
  }
  function nameOf(item) {
    var name = data.names[item.name][0];
    return item.layer === null || name !== "layer" ? name : "layer " + item.layer;
  }

  /* How wide a name is in a frame, and as much of its beginning as fits; nothing if that is a letter or two. */
  var pen = document.createElement("canvas").getContext("2d"), widths = Object.create(null);
  pen.font = "11px " + getComputedStyle(document.body).fontFamily;
  function wide(text) {
    if (widths[text] === undefined) widths[text] = pen.measureText(text).width;
    return widths[text];
  }
  function fitted(text, room) {
    if (wide(text) <= room) return text;
    var fits = Math.min(text.length - 1, Math.floor(room / wide(text) * text.length) + 1);
    while (fits > 2 && pen.measureText(text.slice(0, fits) + "…").width > room) fits--;
    return fits > 2 ? text.slice(0, fits) + "…" : "";
  }

  /* A diagram of nested items: several tracks in a timeline, one in a flame view. An item has x0, x1 (in
  nanoseconds), row, name, layer, outer and inner (items), and details (text). */
  function Diagram(place, items, rows, titles, whole, label, axis) {
    var ROW = 19, window_ = [0, whole], here = null, shown = [];
    var tools = html("div", { class: "tools" }, place);
    var out = html("button", { type: "button" }, tools, "Whole");
    var plus = html("button", { type: "button", "aria-label": "Zoom in" }, tools, "+");
    var minus = html("button", { type: "button", "aria-label": "Zoom out" }, tools, "−");
    html("span", {}, tools, "arrows move, Enter zooms, Esc shows the whole");
    var where = html("span", { class: "where" }, tools);
    var svg = make("svg", { tabindex: "0", role: "application", "aria-roledescription": "diagram", "aria-label": label + ". Arrow keys move, Enter zooms, Escape shows the whole." }, place);
    var detail = html("p", { class: "detail", "aria-live": "polite" }, place);
    var top = 14;

    function width() { return Math.max(200, svg.clientWidth || place.clientWidth - 16); }
    function x(ns, w) { return (ns - window_[0]) / (window_[1] - window_[0]) * w; }
    function colour(item) {
      var kind = data.names[item.name][1];
      if (kind === "kernel" && item.outer) {
        var outer = data.names[item.outer.name][1];
        if (outer !== "layer" && outer !== "phase" && outer !== "kernel") return "of-" + outer;
      }
      return kind;
    }
    function draw() {
      var w = width(), height = top + rows * ROW + 38;
      while (svg.firstChild) svg.removeChild(svg.firstChild);
      svg.setAttribute("viewBox", "0 0 " + w + " " + height);
      svg.style.height = height + "px";
      titles.forEach(function (title) {
        make("text", { x: 0, y: top + title.row * ROW - 4, class: "track" }, svg).textContent = title.text;
      });
      shown = [];
      items.forEach(function (item) {
        var left = x(item.x0, w), right = x(item.x1, w);
        if (right < 0 || left > w) return;
        left = Math.max(left, -1); right = Math.min(right, w + 1);
        var span = Math.max(right - left, 0.4);
        if (right - left < 0.15 && item !== here) return;
        var rect = make("rect", { class: "f " + colour(item), x: left.toFixed(2), y: top + item.row * ROW, width: span.toFixed(2), height: ROW - 1, rx: span > 6 ? 2 : 0 }, svg);
        rect.item = item;
        shown.push(item);
        if (span > 20) {
          var text = nameOf(item);
          if (wide(text) > span - 8 && data.names[item.name][1] === "layer" && item.layer !== null) text = String(item.layer);
          text = fitted(text, span - 8);
          if (text) {
            var kind = colour(item);
            var dark = kind === "layer" || kind === "phase" || kind.indexOf("of-") === 0;
            make("text", { x: (left + 4).toFixed(1), y: top + item.row * ROW + 13, class: dark ? "in dark" : "in on-" + kind }, svg).textContent = text;
          }
        }
      });
      if (here) {
        var left = Math.max(x(here.x0, w), 0), right = Math.min(x(here.x1, w), w);
        if (right >= 0 && left <= w) make("rect", { class: "here", x: left.toFixed(2), y: top + here.row * ROW, width: Math.max(right - left, 2).toFixed(2), height: ROW - 1, rx: 2 }, svg);
      }
      axisOf(w, top + rows * ROW);
      where.textContent = percent(window_[1] - window_[0], whole) + " of the whole";
      tell();
    }
    /* Round times below the frames, and what they are. */
    function axisOf(w, y) {
      var from = window_[0], to = window_[1], step = Math.max(rounded((to - from) / Math.max(w / 110, 1)), 1);
      make("line", { class: "axis", x1: 0, x2: w, y1: y, y2: y }, svg);
      for (var n = Math.ceil(from / step), left = 99; n * step <= to && left > 0; n++, left--) {
        var at = x(n * step, w), anchor = at < 20 ? "start" : at > w - 30 ? "end" : "middle";
        make("line", { class: "axis", x1: at.toFixed(1), x2: at.toFixed(1), y1: y, y2: y + 4 }, svg);
        make("text", { x: at.toFixed(1), y: y + 16, "text-anchor": anchor }, svg).textContent = tick(n * step, step, to);
      }
      make("text", { x: w, y: y + 33, "text-anchor": "end" }, svg).textContent = axis;
    }
    function tell() {
      while (detail.firstChild) detail.removeChild(detail.firstChild);
      if (!here) { detail.textContent = "Choose something to see its numbers."; return; }
      html("b", {}, detail, nameOf(here));
      detail.appendChild(document.createTextNode(" " + here.details));
    }
    function go(item) {
      if (!item) return;
      here = item;
      if (item.x1 < window_[0] || item.x0 > window_[1]) {
        var half = (window_[1] - window_[0]) / 2, middle = (item.x0 + item.x1) / 2;
        window_ = [middle - half, middle + half];
      }
      draw();
    }
    function zoom(from, to) {
      var least = Math.min(whole, 20);
      if (to - from < least) { var middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
      window_ = [from, to];
      draw();
    }
    function scale(by) {
      var middle = here ? (here.x0 + here.x1) / 2 : (window_[0] + window_[1]) / 2;
      var half = Math.min((window_[1] - window_[0]) / 2 * by, whole / 2);
      if (by > 1 && half >= whole / 2) zoom(0, whole); else zoom(middle - half, middle + half);
    }
    /* The next item on the same row, whatever its parent. */
    function beside(step) {
      var row = items.filter(function (item) { return item.row === here.row; }).sort(function (a, b) { return a.x0 - b.x0; });
      return row[row.indexOf(here) + step];
    }
    function inside(item) { return item.inner.slice().sort(function (a, b) { return a.x0 - b.x0; })[0]; }
    /* Below an item without inner items comes the next track. */
    function below() {
      return inside(here) || items.filter(function (item) { return item.row > here.row && !item.outer; }).sort(function (a, b) { return a.row - b.row || a.x0 - b.x0; })[0];
    }
    function above() {
      return here.outer || items.filter(function (item) { return item.row < here.row && !item.outer; }).sort(function (a, b) { return b.row - a.row || a.x0 - b.x0; })[0];
    }
    svg.addEventListener("keydown", function (event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (!here && /^Arrow|^Home|^Enter/.test(event.key)) { event.preventDefault(); go(items[0]); return; }
      switch (event.key) {
        case "ArrowRight": go(beside(1)); break;
        case "ArrowLeft": go(beside(-1)); break;
        case "ArrowDown": go(below()); break;
        case "ArrowUp": go(above()); break;
        case "Home": go(items[0]); break;
        case "Enter": case " ": zoom(here ? here.x0 : 0, here ? here.x1 : whole); break;
        case "Escape": zoom(0, whole); break;
        case "+": case "=": scale(0.5); break;
        case "-": scale(2); break;
        default: return;
      }
      event.preventDefault();
    });
    svg.addEventListener("click", function (event) {
      var item = event.target.item;
      if (item) { go(item); }
    });
    svg.addEventListener("dblclick", function (event) {
      var item = event.target.item;
      if (item) zoom(item.x0, item.x1);
    });
    svg.addEventListener("mouseover", function (event) {
      var item = event.target.item;
      if (item && event.target.childNodes.length === 0) make("title", {}, event.target).textContent = nameOf(item) + " " + item.details;
    });
    out.addEventListener("click", function () { zoom(0, whole); });
    plus.addEventListener("click", function () { scale(0.5); });
    minus.addEventListener("click", function () { scale(2); });
    if (window.ResizeObserver) {
      var last = 0;
      new ResizeObserver(function () { if (Math.abs(svg.clientWidth - last) > 1) { last = svg.clientWidth; draw(); } }).observe(place);
    }
    draw();
    return { draw: draw, shown: function () { return shown.length; } };
  }

  function legend(place) {
    var list = html("p", { class: "legend" }, place);
    [["attention", "attention"], ["ffn", "feed-forward"], ["norm", "normalisation"], ["other", "other bricks"], ["kernel", "kernels, lighter than their brick"]].forEach(function (one) {
      var item = html("span", {}, list);
      html("span", { class: "dot c-" + one[0], "aria-hidden": "true" }, item);
      item.appendChild(document.createTextNode(one[1]));
    });
  }

  function timeline(place, diagram) {
    var items = [], titles = [], row = 0;
    diagram.tracks.forEach(function (track) {
      var first = items.length, depth = 0;
      titles.push({ row: row, text: track.title });
      track.rows.forEach(function (of) {
        var item = { row: row + of[3], name: of[1], layer: of[2], x0: of[4], x1: of[4] + of[5], outer: of[7] < 0 ? null : items[first + of[7]], inner: [] };
        item.details = (of[2] === null || data.names[of[1]][1] === "layer" ? "" : "in layer " + of[2] + ", ") + "takes " + time(of[5]) + " (" + percent(of[5], diagram.wall) + " of the pass), " + time(of[6]) + " of its own, begins at " + time(of[4]);
        if (item.outer) item.outer.inner.push(item);
        depth = Math.max(depth, of[3]);
        items.push(item);
      });
      row += depth + 2;
    });
    legend(place);
    return Diagram(place, items, row - 1, titles, diagram.wall, "Timeline: " + diagram.label, "time since the pass began");
  }

  function flame(place, diagram) {
    var items = [], whole = 0, deepest = 0;
    /* When merged, frames with the same name inside of layers are one. */
    function build(frames) {
      items = []; whole = 0; deepest = 0;
      frames.forEach(function (of) {
        var outer = of[0] < 0 ? null : items[of[0]];
        var from = outer ? outer.next : whole;
        var item = { row: outer ? outer.row + 1 : 0, name: of[1], layer: of[2], x0: from, x1: from + of[4], next: from, outer: outer, inner: [], ns: of[4], count: of[3] };
        if (outer) { outer.next += of[4]; outer.inner.push(item); } else { whole += of[4]; }
        var base = item;
        while (base.outer) base = base.outer;
        item.details = "takes " + time(of[4]) + " (" + percent(of[4], base.ns) + " of " + nameOf(base).toLowerCase() + ")" + (of[3] > 0 ? " in " + of[3] + " spans" : "");
        deepest = Math.max(deepest, item.row);
        items.push(item);
      });
    }
    function merged() {
      var rows = [], at = [], known = {};
      diagram.frames.forEach(function (of, index) {
        var outer = of[0] < 0 ? -1 : at[of[0]], layer = data.names[of[1]][1] === "layer";
        if (layer) { at[index] = outer; return; }
        var key = outer + "/" + of[1];
        if (known[key] === undefined) { known[key] = rows.length; rows.push([outer, of[1], null, 0, 0]); }
        at[index] = known[key];
        rows[known[key]][3] += of[3];
        rows[known[key]][4] += of[4];
      });
      /* Longest first, parents before children. */
      var inner = {}, order = [], place_ = [];
      rows.forEach(function (of, index) { (inner[of[0]] = inner[of[0]] || []).push(index); });
      (function visit(outer) {
        (inner[outer] || []).sort(function (a, b) { return rows[b][4] - rows[a][4]; }).forEach(function (index) {
          place_[index] = order.length;
          order.push([outer < 0 ? -1 : place_[outer]].concat(rows[index].slice(1)));
          visit(index);
        });
      })(-1);
      return order;
    }
    var label = html("label", {}, place);
    var check = html("input", { type: "checkbox", checked: "" }, label);
    label.appendChild(document.createTextNode(" all layers as one"));
    legend(place);
    var inside = html("div", {}, place);
    function again() {
      while (inside.firstChild) inside.removeChild(inside.firstChild);
      build(check.checked ? merged() : diagram.frames);
      Diagram(inside, items, deepest + 1, [], whole, "Flame view", "measured time, summed");
    }
    check.addEventListener("change", again);
    again();
  }

  document.querySelectorAll("[data-timeline]").forEach(function (place) {
    timeline(place, data.timelines[+place.getAttribute("data-timeline")]);
  });
  document.querySelectorAll("[data-flame]").forEach(function (place) {
    flame(place, data.flames[+place.getAttribute("data-flame")]);
  });

  /* One pass at a time. */
  var passes = document.querySelectorAll("[data-pass]");
  function choose(number) {
    passes.forEach(function (pass) { pass.hidden = pass.getAttribute("data-pass") !== number; });
  }
  document.querySelectorAll("input[name=pass]").forEach(function (input) {
    input.addEventListener("change", function () { if (input.checked) choose(input.value); });
    if (input.checked) choose(input.value);
  });

  /* Shades relative to the whole table or to the column. */
  document.querySelectorAll("table.heat:not(.apart)").forEach(function (table, number) {
    var choice = html("fieldset", { class: "choice" });
    html("legend", {}, choice, "Shades by");
    [["table", "the whole table"], ["column", "each brick"]].forEach(function (one, index) {
      var label = html("label", {}, choice);
      var input = html("input", { type: "radio", name: "shade-" + number, value: one[0] }, label);
      if (index === 0) input.checked = true;
      label.appendChild(document.createTextNode(" " + one[1]));
      input.addEventListener("change", function () { table.classList.toggle("by-column", one[0] === "column" && input.checked); });
    });
    var scroll = table.closest(".scroll");
    scroll.parentNode.insertBefore(choice, scroll);
  });
})();
