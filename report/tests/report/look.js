/* What a reader sees of a page, in words that are the same with any font, and what is wrong with it: in light,
and in dark. */
window.addEventListener("load", function () { setTimeout(function () {
    var wrong = [], lines = [];
    var all = function (what, within) { return Array.from((within || document).querySelectorAll(what)); };
    var said = function (e) { return e.innerText.replace(/\s+/g, " ").trim(); };
    var has = function (e, what) { return e.matches(what); };
    var is_shown = function (e) { return e.getClientRects().length > 0 && e.checkVisibility(); };
    var line = function (depth, text) { lines.push(("  ".repeat(depth) + text).trimEnd()); };

    /* What is where. */
    var columns = function (elements) {
        var lefts = elements.filter(is_shown).map(function (e) { return Math.round(e.getBoundingClientRect().left); });
        return new Set(lefts).size;
    };
    var cells = function (row) {
        return Array.from(row.cells).map(function (cell) {
            var key = cell.querySelector(".key");
            return key ? said(key) + " " + said(cell).slice(said(key).length) : said(cell);
        }).join(" | ");
    };
    var table = function (e, depth) {
        var rows = all("tbody tr", e);
        line(depth, "table of " + rows.length + (rows.length === 1 ? " row" : " rows") + (e.caption ? ": " + said(e.caption) : ""));
        all("thead tr", e).concat(rows.slice(0, 1)).forEach(function (row) { line(depth + 1, cells(row)); });
    };
    /* Names in frames are cut to their room, which a font decides. */
    var picture = function (e, depth) {
        line(depth, "picture" + (e.getAttribute("aria-label") ? ": " + e.getAttribute("aria-label") : ""));
        var words = all("text:not(.in)", e).map(function (text) { return text.textContent; });
        if (words.length > 0) line(depth + 1, words.join(" | "));
    };
    var look = function (e, depth) {
        if (!is_shown(e) || has(e, "script, noscript")) return;
        var inner = Array.from(e.children);
        if (has(e, "h1, h2, h3")) line(depth, "#".repeat(Number(e.tagName[1])) + " " + said(e));
        else if (has(e, ".cards")) {
            line(depth, "tiles, " + columns(inner) + " in a row");
            inner.forEach(function (card) { line(depth + 1, Array.from(card.children).map(said).join(" | ")); });
        } else if (has(e, ".parts, .charts")) {
            line(depth, columns(inner) + " beside each other");
            inner.forEach(function (part) { look(part, depth + 1); });
        } else if (has(e, "ol, ul")) {
            line(depth, "list of " + inner.length + " in " + columns(inner) + (columns(inner) === 1 ? " column" : " columns"));
            inner.forEach(function (item) { line(depth + 1, item.innerText.trim().split("\n")[0]); });
        } else if (has(e, "details")) line(depth, (e.open ? "open: " : "folded: ") + said(e.querySelector("summary")));
        else if (has(e, "table")) table(e, depth);
        else if (has(e, "svg")) picture(e, depth);
        else if (has(e, "p, figcaption, legend, label, button, select, .tools")) { if (said(e)) line(depth, said(e)); }
        else if (has(e, ".choice")) line(depth, "choice: " + inner.map(function (of) { return said(of) || of.placeholder; }).join(" | "));
        else inner.forEach(function (part) { look(part, depth); });
    };
    var page_in_words = function () {
        lines = [];
        var nav = document.querySelector("nav"), main = document.querySelector("main");
        var is_beside = nav.getBoundingClientRect().right <= main.getBoundingClientRect().left + 1;
        line(0, "contents, " + (is_beside ? "beside the page: " : "above the page: ") + all("ol a", nav).map(said).join(" | "));
        Array.from(main.children).forEach(function (part) {
            lines.push("");
            look(part, 0);
        });
        return lines.join("\n").trim();
    };

    /* Colours, as the browser mixes them. */
    var pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    var rgba = function (colour) {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        var of = pen.getImageData(0, 0, 1, 1).data;
        return [of[0], of[1], of[2], of[3] / 255];
    };
    var over = function (top, under) {
        return [0, 1, 2].map(function (nth) { return top[nth] * top[3] + under[nth] * (1 - top[3]); }).concat(1);
    };
    var around = function (e) { return e ? around(e.parentElement).concat(e) : []; };
    var behind = function (e) {
        var of = around(e).map(function (outer) { return rgba(getComputedStyle(outer).backgroundColor); });
        var under = of.reduce(function (under, top) { return over(top, under); }, [255, 255, 255, 1]);
        var mark = e.matches("text.in") ? e.previousSibling : e.matches(".point text") ? e.parentNode.querySelector("circle:not(.spot)") : null;
        return mark ? over(rgba(getComputedStyle(mark).fill), under) : under;
    };
    var light = function (colour) {
        var of = colour.slice(0, 3).map(function (c) { return c / 255 <= 0.04045 ? c / 255 / 12.92 : Math.pow((c / 255 + 0.055) / 1.055, 2.4); });
        return 0.2126 * of[0] + 0.7152 * of[1] + 0.0722 * of[2];
    };
    var contrast = function (e, pseudo) {
        var style = getComputedStyle(e, pseudo), under = behind(e);
        var top = rgba(e.closest("svg") ? style.fill : style.color);
        top[3] *= around(e).reduce(function (part, outer) { return part * Number(getComputedStyle(outer).opacity); }, 1);
        var a = light(over(top, under)), b = light(under);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };

    /* What is wrong. */
    var kind = function (e) {
        var of = function (e) { return e.tagName.toLowerCase() + (e.getAttribute("class") || "").split(" ").filter(Boolean).map(function (c) { return "." + c; }).join(""); };
        return (e.closest("table, .card, .banner, svg, nav") ? of(e.closest("table, .card, .banner, svg, nav")) + " " : "") + of(e);
    };
    var tell = function (what, e, more) {
        wrong.push(what + ": " + kind(e) + " " + (e.textContent || e.placeholder).trim().slice(0, 40) + (more ? " " + more : ""));
    };
    var texts = function () {
        var walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
        while (walker.nextNode()) {
            var e = walker.currentNode.parentElement;
            if (walker.currentNode.data.trim() && is_shown(e) && !has(e, ".skip, script, noscript, option")) found.push(walker.currentNode);
        }
        return found;
    };
    var box_of = function (text) {
        var range = document.createRange();
        range.selectNodeContents(text);
        return range.getBoundingClientRect();
    };
    var is_cut = function (e) {
        return around(e).some(function (outer) {
            var way = getComputedStyle(outer).overflowX;
            return (way === "hidden" || way === "clip") && outer instanceof HTMLElement && outer.tagName !== "SUMMARY" && outer.scrollWidth > outer.clientWidth + 1;
        });
    };
    var scrolls = function (e) {
        return around(e).some(function (outer) { return has(outer, ".scroll, nav ol"); });
    };
    var check_places = function () {
        var wider = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - window.innerWidth;
        if (wider > 0) wrong.push("the page is " + wider + " pixels wider than the window");
        texts().forEach(function (text) {
            var e = text.parentElement, box = box_of(text), place = e.closest("svg, .card, .diagram, section, nav, header, footer");
            if (!scrolls(e)) {
                if (place && (box.right > place.getBoundingClientRect().right + 1 || box.left < place.getBoundingClientRect().left - 1)) tell("beyond " + kind(place), e);
                if (box.right > window.innerWidth + 1 || box.left < -1) tell("beyond the window", e);
            }
            if (is_cut(e) && !e.closest("[title]")) tell("cut without a title", e);
            if (/…$/.test(text.data.trim()) && !e.closest("[title]")) {
                var frame = has(e, "text.in") ? e.previousSibling : e;
                frame.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
                if (!frame.querySelector("title")) tell("cut without a title", e);
            }
        });
        /* In a narrow window tables scroll; in a wide one they have room. */
        if (window.innerWidth >= 1280) all(".scroll").filter(is_shown).forEach(function (place) {
            if (place.scrollWidth > place.clientWidth + 1) tell((place.scrollWidth - place.clientWidth) + " pixels wider than its place", place.firstElementChild);
        });
        all("svg").filter(is_shown).forEach(function (svg) {
            var labels = all("text", svg).filter(is_shown);
            var boxes = labels.map(function (label) { return label.getBoundingClientRect(); });
            boxes.forEach(function (a, nth) {
                boxes.slice(0, nth).forEach(function (b, other) {
                    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) tell("on another label", labels[nth], "on " + labels[other].textContent);
                });
            });
        });
    };
    var check_colours = function (theme) {
        var seen = Object.create(null);
        var check = function (e, pseudo) {
            var of = contrast(e, pseudo), what = kind(e) + (pseudo || "");
            if (of < 4.5 && !seen[what]) {
                seen[what] = true;
                tell("contrast " + of.toFixed(2) + " in " + theme, e);
            }
        };
        texts().forEach(function (text) { check(text.parentElement); });
        all("input[placeholder]").filter(is_shown).forEach(function (input) { check(input, "::placeholder"); });
    };

    var words = [];
    try {
        if (window.act) window.act();
        ["light", "dark"].forEach(function (theme) {
            document.getElementById("theme").click();
            if (document.documentElement.getAttribute("data-theme") !== theme) wrong.push("the button chose no " + theme);
            words.push(page_in_words());
            check_places();
            check_colours(theme);
        });
        all("details").forEach(function (details) { details.open = true; });
        check_places();
        check_colours("dark, opened");
    } catch (e) { errors.push(e.stack); }
    var seen = { errors: errors, wrong: wrong, light: words[0] || "", dark: words[1] || "" };
    document.documentElement.setAttribute("seen", encodeURIComponent(JSON.stringify(seen)));
    if (window.parent !== window) window.parent.postMessage(document.documentElement.getAttribute("seen"), "*");
}, 400); });
