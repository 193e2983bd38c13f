"use strict";
/* What all pages have: colours, contents, and ways to make elements. */
var page = (function () {
  var root = document.documentElement;
  root.classList.add("scripted");
  var data = JSON.parse(document.getElementById("data").textContent);
  var SVG = "http://www.w3.org/2000/svg";

  /* Colours: the system's, light or dark. A page opened from a file may have no storage. */
  var themes = ["auto", "light", "dark"];
  var words = { auto: "system", light: "light", dark: "dark" };
  var theme = "auto";
  try { theme = localStorage.getItem("brickscope-theme") || "auto"; } catch (e) { /* none then */ }
  var button = document.getElementById("theme");
  function paint() {
    if (themes.indexOf(theme) < 0) theme = "auto";
    if (theme === "auto") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", theme);
    button.setAttribute("aria-label", "Colours: " + words[theme]);
    button.title = "Colours: " + words[theme];
  }
  button.addEventListener("click", function () {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("brickscope-theme", theme); } catch (e) { /* for this time only */ }
    paint();
  });
  paint();

  function make(name, attributes, parent) {
    var element = document.createElementNS(SVG, name);
    for (var key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(element);
    return element;
  }
  function html(name, attributes, parent, text) {
    var element = document.createElement(name);
    for (var key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }

  /* The next larger one, two or five times a power of ten. */
  function rounded(least) {
    var power = Math.pow(10, Math.floor(Math.log(least) / Math.LN10 + 1e-9));
    var times = [1, 2, 5].filter(function (n) { return n * power >= least * (1 - 1e-9); })[0];
    return (times || 10) * power;
  }

  /* Marks the section that the reader is in. */
  var links = {};
  document.querySelectorAll("nav ol a").forEach(function (link) { links[link.getAttribute("href").slice(1)] = link; });
  if (window.IntersectionObserver) {
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        for (var id in links) links[id].removeAttribute("aria-current");
        if (links[entry.target.id]) links[entry.target.id].setAttribute("aria-current", "true");
      });
    }, { rootMargin: "0px 0px -75% 0px" });
    document.querySelectorAll("section").forEach(function (section) { seen.observe(section); });
  }

  return { data: data, make: make, html: html, rounded: rounded };
})();
