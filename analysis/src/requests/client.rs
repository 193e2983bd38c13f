//! Requests as their client saw them, beside the server's own times: what the client, the network and the way into the server
//! took.

use std::collections::{HashMap, HashSet};
use std::fmt;

use brickscope_profile::{Profile, Request};
use serde::Serialize;

use super::{SLOW, Times, rank};

/// The least of slow tokens' excess, in parts of two, that the way took for it to be the cause.
const HALF: u64 = 2;
/// Fewer intervals have no typical one.
const FEWEST: usize = 20;

/// The backend of a run that has what a client of a server saw.
pub const OF_CLIENT: &str = "a client of a server";

/// Why such a run doesn't say where the time of its requests went.
pub const ONLY_CLIENT: &str =
    "Only the client saw this: what tokens waited for is in the server's run, if one was recorded";

/// Whether a run has what a client of a server saw.
#[must_use]
pub fn is_by_client(profile: &Profile) -> bool {
    profile.run.as_ref().is_some_and(|run| run.backend == OF_CLIENT)
}

/// How long after it was due a client sent a request, in nanoseconds. `None` if it was sent at once.
#[must_use]
pub fn late_ns(of: &Request) -> Option<u64> {
    let late = of.admitted_ns?.saturating_sub(of.arrived_ns);
    Some(late).filter(|ns| *ns > 0)
}

/// A stretch between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the time at which a request was due until its client began to send it.
    Waiting,
    /// From there until the server had its first bytes: connecting, and the network.
    There,
    /// From the time at which the server began to send the first token until its client had it.
    FirstBack,
    /// The same, of further tokens.
    FurtherBack,
}

impl Way {
    /// All of them, in the order of time.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::There, Self::FirstBack, Self::FurtherBack];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "due until sent",
            Self::There => "to the server",
            Self::FirstBack => "back, first token",
            Self::FurtherBack => "back, further tokens",
        }
    }
}

/// Why two runs can't be put beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoClient {
    /// No request of one has the name of one of the other.
    NoneInBoth,
    /// One of them doesn't relate its clock to that of the machine.
    NoClock,
    /// The server had requests before they were sent, by so many nanoseconds: the clocks are of two machines.
    OtherMachine(u64),
}

impl fmt::Display for NoClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneInBoth => f.write_str("no request of the one is in the other"),
            Self::NoClock => {
                f.write_str("one of them doesn't say how its clock relates to the machine's")
            }
            Self::OtherMachine(ns) => write!(
                f,
                "the server had a request {} before it was sent: they ran on two machines, whose clocks differ, or are \
                 of different starts of one",
                crate::words::time(*ns as f64)
            ),
        }
    }
}

/// A client's requests beside those of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Requests that both know.
    pub both: u64,
    /// Requests that the client alone knows, and that were answered.
    pub client_alone: u64,
    /// Requests of the client whose name another one has, too, here or there: nobody knows which is which.
    pub alike: u64,
    /// Each [`Way`]'s times in nanoseconds, in the order of [`Way::ALL`].
    pub ways: [Vec<u64>; Way::ALL.len()],
    /// Requests of both whose pieces are not as many here as there, so that their ways back aren't known.
    pub other_pieces: u64,
    /// Tokens after the first that took the client at least [`SLOW`] times the median, and which the server sent.
    pub slow: u64,
    /// How many tokens that is of.
    pub of: u64,
    /// In how many of the slow ones the ways back took half or more of what was more than the median.
    pub slow_by_way: u64,
}

/// So far in nanoseconds may the clocks of one machine seem to differ: the readings that relate them take some time, and rates
/// are measured.
const CLOCKS_DIFFER: u64 = 200_000;

impl Client {
    /// Puts the requests of a client beside those of the server, by their names.
    ///
    /// # Errors
    ///
    /// If they have none in common, or their times can't be compared.
    pub fn of(server: &Profile, client: &Profile) -> Result<Self, NoClient> {
        let mut known: HashMap<&str, Option<&Request>> = HashMap::new();
        for request in &server.requests {
            // vLLM's engine numbers the prompts of a request: `cmpl-7-0`.
            let whole = request.id.rsplit_once('-').map(|(whole, _)| whole);
            for id in whole.into_iter().chain([request.id.as_str()]) {
                known.entry(id).and_modify(|of| *of = None).or_insert(Some(request));
            }
        }
        let mut here: HashSet<&str> = HashSet::new();
        let ids = client.requests.iter().map(|request| request.id.as_str());
        let here_twice: HashSet<&str> = ids.filter(|id| !here.insert(id)).collect();
        let mut found = Self {
            both: 0,
            client_alone: 0,
            alike: 0,
            ways: Default::default(),
            other_pieces: 0,
            slow: 0,
            of: 0,
            slow_by_way: 0,
        };
        let here = |ns: u64| client.clock.monotonic_ns(ns).ok_or(NoClient::NoClock);
        let there = |ns: u64| server.clock.monotonic_ns(ns).ok_or(NoClient::NoClock);
        // Of each further token: how long the client waited for it, and how much longer than the server took.
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        let mut earliest = 0;
        for of_client in &client.requests {
            let of_server = known.get(of_client.id.as_str()).copied();
            if here_twice.contains(of_client.id.as_str()) || of_server == Some(None) {
                found.alike += 1;
                continue;
            }
            let Some(of_server) = of_server.flatten() else {
                found.client_alone += u64::from(of_client.is_answered());
                continue;
            };
            found.both += 1;
            let mut way = |way: Way, from: u64, to: u64| {
                earliest = earliest.max(from.saturating_sub(to));
                found.ways[way as usize].push(to.saturating_sub(from));
            };
            let sent = of_client.admitted_ns.unwrap_or(of_client.arrived_ns);
            way(Way::Waiting, of_client.arrived_ns, sent);
            way(Way::There, here(sent)?, there(of_server.arrived_ns)?);
            let (got, left) = (&of_client.tokens_ns, &of_server.tokens_ns);
            if got.len() != left.len() {
                found.other_pieces += 1;
                continue;
            }
            for (nth, (got, left)) in got.iter().zip(left).enumerate() {
                let of = if nth == 0 { Way::FirstBack } else { Way::FurtherBack };
                way(of, there(*left)?, here(*got)?);
            }
            let gap = |times: &[u64]| times[1].saturating_sub(times[0]);
            gaps.extend(got.windows(2).zip(left.windows(2)).map(|(got, left)| {
                let waited = gap(got);
                (waited, waited.saturating_sub(gap(left)))
            }));
        }
        if found.both == 0 {
            return Err(NoClient::NoneInBoth);
        }
        if earliest > CLOCKS_DIFFER {
            return Err(NoClient::OtherMachine(earliest));
        }
        found.count_slow(&gaps);
        Ok(found)
    }

    /// The times of each way.
    #[must_use]
    pub fn times(&self) -> [Times; Way::ALL.len()] {
        Way::ALL.map(|way| Times::of(way.name(), self.ways[way as usize].iter().copied()))
    }

    fn count_slow(&mut self, gaps: &[(u64, u64)]) {
        if gaps.len() < FEWEST {
            return;
        }
        let mut waited: Vec<u64> = gaps.iter().map(|(waited, _)| *waited).collect();
        waited.sort_unstable();
        let median = rank(&waited, 50).unwrap_or(0);
        self.of = gaps.len() as u64;
        for (waited, more) in gaps {
            if median > 0 && *waited >= median.saturating_mul(SLOW) {
                self.slow += 1;
                self.slow_by_way += u64::from(*more >= (waited - median) / HALF);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::ClockInfo;
    use brickscope_profile::clock::Anchor;

    use super::*;

    fn run(ahead: u64, requests: Vec<Request>) -> Profile {
        let anchor = Anchor {
            at_ns: ahead,
            monotonic_ns: 0,
            monotonic_raw_ns: 0,
            unix_ns: None,
            width_ns: 1,
        };
        let clock = ClockInfo { anchors: vec![anchor], ..ClockInfo::default() };
        Profile { requests, ..Profile::empty(clock) }
    }

    fn request(id: &str, times: &[u64]) -> Request {
        Request {
            id: id.to_owned(),
            arrived_ns: times[0],
            admitted_ns: Some(times[1]),
            tokens_ns: times[2..].to_vec(),
            ..Request::default()
        }
    }

    #[test]
    fn what_lies_between_a_client_and_its_server_is_measured_on_one_clock() {
        // The server's clock began 1,000 earlier than the machine's, the client's 50.
        let server = run(1_000, vec![request("a", &[1_130, 1_140, 1_200, 1_300])]);
        let mut alone = request("b", &[1, 2, 3]);
        alone.ended_ns = Some(3);
        let client = run(50, vec![request("a", &[150, 160, 255, 370]), alone]);
        let found = Client::of(&server, &client).expect("one machine");
        assert_eq!((found.both, found.client_alone, found.other_pieces), (1, 1, 0));
        assert_eq!(found.ways, [vec![10], vec![20], vec![5], vec![20]]);
        // The whole time of the first token, as its client sees it.
        assert_eq!(10 + 20 + (1_200 - 1_130) + 5, 255 - 150);
    }

    #[test]
    fn a_request_is_found_by_the_name_that_its_client_knows() {
        let ids = ["cmpl-7-0", "cmpl-7-1", "cmpl-8-0"];
        let server = run(0, ids.map(|id| request(id, &[5, 6, 9])).to_vec());
        let ids = ["cmpl-8", "cmpl-7", "twice", "twice"];
        let client = run(0, ids.map(|id| request(id, &[1, 2, 10])).to_vec());
        let found = Client::of(&server, &client).expect("one machine");
        // Two of the server's are of the second.
        assert_eq!((found.both, found.alike, found.client_alone), (1, 3, 0));
    }

    #[test]
    fn times_of_two_machines_are_not_compared() {
        let server = run(0, vec![request("a", &[0, 10, 20])]);
        let client =
            run(0, vec![request("a", &[CLOCKS_DIFFER, CLOCKS_DIFFER + 1, 2 * CLOCKS_DIFFER])]);
        assert_eq!(Client::of(&server, &client), Err(NoClient::OtherMachine(CLOCKS_DIFFER + 1)));
        let other = run(0, vec![request("b", &[0, 10, 20])]);
        assert_eq!(Client::of(&server, &other), Err(NoClient::NoneInBoth));
        let mut no_clock = client;
        no_clock.clock.anchors.clear();
        assert_eq!(Client::of(&server, &no_clock), Err(NoClient::NoClock));
    }

    #[test]
    fn a_token_that_was_slow_on_its_way_is_told_from_one_that_the_server_made_late() {
        let mut left: Vec<u64> = (0..40).map(|nth| 1_000 + nth * 100).collect();
        let mut got: Vec<u64> = left.iter().map(|at| at + 10).collect();
        // The server is late by 300 once, and the network once.
        left[20..].iter_mut().for_each(|at| *at += 300);
        got[20..].iter_mut().for_each(|at| *at += 300);
        got[30..].iter_mut().for_each(|at| *at += 250);
        let of = |times: &[u64]| [&[0, 5], times].concat();
        let (server, client) =
            (run(0, vec![request("a", &of(&left))]), run(0, vec![request("a", &of(&got))]));
        let found = Client::of(&server, &client).expect("one machine");
        assert_eq!((found.of, found.slow, found.slow_by_way), (39, 2, 1));
    }
}
