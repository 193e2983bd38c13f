//! What keys do.

use brickscope_profile::Phase;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Branch, Sort, View};

impl App {
    pub(super) fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.has_quit = true;
            return;
        }
        if self.is_help {
            self.is_help = false;
            return;
        }
        if self.is_filtering {
            match key.code {
                KeyCode::Enter => self.is_filtering = false,
                KeyCode::Esc => {
                    self.is_filtering = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.chars().count() < 64 => self.filter.push(c),
                _ => {}
            }
            self.selected = 0;
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.has_quit = true,
            KeyCode::Esc | KeyCode::Backspace if self.drilled.is_some() => {
                self.drilled = None;
            }
            KeyCode::Char('f') if self.view == View::Findings => self.show(self.came_from),
            KeyCode::Esc | KeyCode::Backspace if self.view == View::Findings => {
                self.show(self.came_from);
            }
            KeyCode::Char('f') => self.show(View::Findings),
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => self.has_quit = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = true,
            KeyCode::Char(' ') => {
                self.frozen = if self.is_paused() { None } else { self.freeze() };
            }
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(View::ALL.len() - 1),
            KeyCode::Char(n @ '1'..='6') => self.show(View::ALL[n as usize - '1' as usize]),
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|&sort| sort == self.sort).unwrap_or_default();
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('S' | 'r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => {
                self.is_filtering = true;
                if self.view != View::Bricks {
                    self.show(View::Bricks);
                }
                self.drilled = None;
            }
            KeyCode::Char('p') => {
                let at = Phase::ALL.iter().position(|&phase| phase == self.phase).unwrap_or(0);
                let next = (1..=Phase::ALL.len()).map(|n| Phase::ALL[(at + n) % Phase::ALL.len()]);
                // Engines that encode are few.
                let has = |phase: &Phase| {
                    let of =
                        || self.seen().map(|seen| seen.snapshot.profile.phase(*phase).is_some());
                    !matches!(phase, Phase::Encode | Phase::Training) || of().unwrap_or(false)
                };
                self.phase = next.into_iter().find(has).unwrap_or(self.phase);
                self.is_phase_chosen = true;
            }
            KeyCode::Char('w') => self.is_recent = !self.is_recent,
            KeyCode::Enter => self.enter(),
            code => self.go(code),
        }
    }

    fn turn(&mut self, by: usize) {
        let at = View::ALL.iter().position(|&view| view == self.view).unwrap_or_default();
        self.show(View::ALL[(at + by) % View::ALL.len()]);
    }

    fn show(&mut self, view: View) {
        if self.view != View::Findings {
            self.came_from = self.view;
        }
        self.view = view;
        self.drilled = None;
        self.selected = 0;
    }

    fn enter(&mut self) {
        match self.view {
            View::Bricks if self.drilled.is_none() => {
                let row = self.rows().into_iter().nth(self.selected);
                self.drilled = row.map(|row| row.name);
            }
            View::Tree => self.fold(None),
            View::Requests => self.has_ended_ones = !self.has_ended_ones,
            _ => {}
        }
    }

    /// Opens or closes the selected line of the tree, or toggles it if neither is given.
    fn fold(&mut self, open: Option<bool>) {
        let Some(Branch { place: Some((place, is_open)), .. }) =
            self.branches().into_iter().nth(self.selected)
        else {
            return;
        };
        if open.unwrap_or(!is_open) {
            self.open.insert(place);
        } else {
            self.open.remove(&place);
        }
    }

    fn go(&mut self, code: KeyCode) {
        let last = self.lines().saturating_sub(1);
        let is_heat = self.view == View::Heat;
        self.selected = match code {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected + 10,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => self.selected,
        }
        .min(last);
        match code {
            KeyCode::Left if is_heat => self.column = self.column.saturating_sub(1),
            KeyCode::Right if is_heat => {
                let last = self.heat().map_or(0, |heat| heat.bricks.len().saturating_sub(1));
                self.column = (self.column + 1).min(last);
            }
            KeyCode::Left if self.view == View::Tree => self.fold(Some(false)),
            KeyCode::Right if self.view == View::Tree => self.fold(Some(true)),
            KeyCode::Char('+') if self.view == View::Tree => {
                let layers = self.heat().map(|heat| heat.layers).unwrap_or_default();
                self.open.extend(layers.into_iter().map(|layer| (layer, None)));
            }
            KeyCode::Char('-') if self.view == View::Tree => self.open.clear(),
            _ => {}
        }
    }

    /// The number of lines that can be selected.
    fn lines(&self) -> usize {
        match self.view {
            View::Bricks if self.drilled.is_some() => 1,
            View::Bricks => self.rows().len(),
            View::Heat => self.heat().map_or(0, |heat| heat.layers.len()),
            View::Tree => self.branches().len(),
            View::System | View::Findings | View::Requests => self.scrolls.get() + 1,
        }
    }
}
