/* Text of each kind that any page has, so that its colours can be looked at. */
window.act = function () {
    var html = "", each = function (names, of) { names.split(" ").forEach(function (name) { html += of(name); }); };
    var shades = Array.from({ length: 13 }, function (_, nth) { return nth; }).join(" ");
    var table = function (of, cells) { html += "<table class='heat" + of + "'><tbody><tr>"; cells(); html += "</tr></tbody></table>"; };
    table("", function () { each(shades, function (nth) { return "<td class='n h" + nth + "'>1.0</td>"; }); });
    table(" by-column", function () { each(shades, function (nth) { return "<td class='n k" + nth + "'>1.0</td>"; }); });
    table(" apart", function () {
        each(shades, function (nth) { return "<td class='n s" + nth + "'>+1.0</td><td class='n f" + nth + "'>-1.0</td>"; });
        html += "<td class='n none'>only A</td><td class='n all'>1.0</td>";
    });
    var frame = function (name, of) { return "<rect class='f " + name + "' width='9' height='9'/><text class='in " + of + "'>" + name + "</text>"; };
    html += "<div class='diagram'><svg viewBox='0 0 99 99'>";
    each("attention ffn norm other kernel", function (name) { return frame(name, "on-" + name); });
    each("layer phase of-attention of-ffn of-norm of-other", function (name) { return frame(name, "dark"); });
    html += "</svg></div>";
    each("attention ffn norm other kernel", function (name) {
        var point = "<svg viewBox='0 0 9 9'><g class='point c-" + name + "'><circle r='9'/><text>A</text></g></svg>";
        return "<span class='key c-" + name + "'>A</span>" + point;
    });
    html += "<svg viewBox='0 0 9 9'><g class='point c-chosen'><circle r='9'/><text>A</text></g></svg>";
    each("verdict:slower verdict:faster verdict:inconclusive absent side lead note reason facts kind headline next", function (name) {
        html += "<p><span class='" + name.replace(":", " ") + "'>" + name + "</span></p>";
    });
    html += "<table><tbody><tr class='error'><td>error</td></tr><tr class='unattributed'><th>rest</th></tr><tr class='category'><th>category</th></tr></tbody></table>";
    html += "<div class='banner'>banner</div><div class='banner warn'>warning <a href='#'>link</a></div>";
    var section = document.createElement("section");
    section.innerHTML = html;
    document.querySelector("main").appendChild(section);
};
