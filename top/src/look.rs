//! What the terminal can show, by the environment.

/// What a screen may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Colours.
    pub has_colour: bool,
    /// Characters beyond ASCII: blocks and braille for bars and graphs.
    pub is_unicode: bool,
}

impl Look {
    /// What every terminal shows: ASCII without colours.
    #[must_use]
    pub const fn plain() -> Self {
        Self { has_colour: false, is_unicode: false }
    }

    /// What the environment says. `variable` gives a variable's value, if it is set.
    ///
    /// ```
    /// use brickscope_top::Look;
    ///
    /// let of = |set: &[(&str, &str)], name: &str| {
    ///     let found = set.iter().find(|(of, _)| *of == name);
    ///     found.map(|(_, value)| (*value).to_owned())
    /// };
    /// let looks = |set: &[(&str, &str)]| Look::of(|name| of(set, name));
    /// assert!(looks(&[("TERM", "xterm-256color"), ("LANG", "en_US.UTF-8")]).is_unicode);
    /// // The console of Linux has no glyphs for braille.
    /// assert!(!looks(&[("TERM", "linux"), ("LANG", "en_US.UTF-8")]).is_unicode);
    /// // The first of the three that is set counts, see <https://no-color.org> for colours.
    /// let set = [("TERM", "xterm"), ("LC_ALL", "C"), ("LANG", "C.utf8"), ("NO_COLOR", "1")];
    /// assert_eq!(looks(&set), Look::plain());
    /// ```
    #[must_use]
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.unwrap_or_default().to_ascii_lowercase().replace('-', "");
        let terminal = set("TERM").unwrap_or_default();
        let has_glyphs = !terminal.is_empty() && !terminal.starts_with("linux");
        let is_dumb = terminal == "dumb";
        Self {
            has_colour: set("NO_COLOR").is_none() && !is_dumb,
            is_unicode: locale.contains("utf8") && has_glyphs && !is_dumb,
        }
    }
}
