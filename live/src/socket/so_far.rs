//! Asking a recording for a run of what it has kept so far: both sides.
//!
//! Whoever records has no thread for this. It [looks](Recording::look) for requests now and then, and neither that nor answering
//! waits for a client: one that sends nothing, or reads nothing, is disconnected.

use std::io::{self, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};

use super::connect::{to_process, to_socket};
use super::listen::{bind, own_place, peer_uid};
use super::path::own_uid;
use super::snapshotter::{line_of, line_of_error};
use super::timed::{Timed, is_time_out};
use super::{LiveError, MOST_REQUEST, Message, Messages, Request, SoFar, io_error};

/// The most clients at once. Further ones get an error.
const MOST_CLIENTS: usize = 16;
/// A client that takes longer than this to send its request is disconnected. `top --attach` sends none, and is told why.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// How long to wait for an answer: the run is written meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// Between a program and its recorder may be a shell or two.
const MOST_PARENTS: usize = 4;

/// Who asked.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    since: Instant,
    line: Vec<u8>,
    has_asked: bool,
}

/// What came of reading a request.
enum Came {
    Nothing,
    SoFar,
    Gone,
    Wrong(String),
}

/// A recording that can be asked for a run of what it has kept so far, for as long as this value lives.
///
/// It listens where a [`Publisher`](super::Publisher) does, and lets in whom that lets in.
#[derive(Debug)]
pub struct Recording {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
    within: Duration,
}

impl Recording {
    /// Listens on the socket that [`ask_so_far`] looks for.
    ///
    /// # Errors
    ///
    /// If this process listens already, or the socket can't be made.
    pub fn begin() -> Result<Self, LiveError> {
        Self::begin_at(&own_place()?)
    }

    /// Listens on a socket at `path`.
    ///
    /// # Errors
    ///
    /// Like [`begin`](Self::begin).
    pub fn begin_at(path: &Path) -> Result<Self, LiveError> {
        let listener = bind(path)?;
        let path = path.to_owned();
        let recording = Self { listener, path, clients: Vec::new(), within: REQUEST_WITHIN };
        let failed = io_error(recording.path.display().to_string());
        recording.listener.set_nonblocking(true).map_err(failed)?;
        Ok(recording)
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anybody asks for what is kept so far, and waits for an [answer](Self::answer).
    #[must_use]
    pub fn look(&mut self) -> bool {
        self.admit_all();
        let within = self.within;
        self.clients.retain_mut(|client| client.is_kept(within));
        self.clients.iter().any(|client| client.has_asked)
    }

    /// Lets in those that wait.
    fn admit_all(&mut self) {
        for _ in 0..MOST_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            self.admit(stream);
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if peer_uid(&stream).is_some_and(|uid| uid != own_uid() && uid != 0) {
            refuse(&stream, "this process belongs to another user");
        } else if self.clients.len() >= MOST_CLIENTS {
            refuse(&stream, &format!("there are already {MOST_CLIENTS} who ask"));
        } else {
            let (since, line) = (Instant::now(), Vec::new());
            self.clients.push(Client { stream, since, line, has_asked: false });
        }
    }

    /// Answers all that have asked: with the run that was written, or with why none was.
    pub fn answer(&mut self, written: Result<&SoFar, &str>) {
        let line = match written {
            Ok(so_far) => line_of(&Message::SoFar(so_far.clone()))
                .unwrap_or_else(|why| line_of_error(&why.to_string())),
            Err(why) => line_of_error(why),
        };
        for client in self.clients.extract_if(.., |client| client.has_asked) {
            let _ = send_line(&client.stream, &line);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Nobody should find a socket without a listener. If this fails, the next one removes it.
        let _ = std::fs::remove_file(&self.path);
        // Who came since it was last looked would be told that the connection was reset.
        self.admit_all();
        for client in &self.clients {
            refuse(&client.stream, "the program has ended, and its run is being written");
        }
    }
}

impl Client {
    /// Reads what came, and returns whether to go on with this one.
    fn is_kept(&mut self, within: Duration) -> bool {
        if self.has_asked {
            return true;
        }
        match self.read() {
            Came::SoFar => self.has_asked = true,
            Came::Gone => return false,
            Came::Wrong(why) => {
                refuse(&self.stream, &why);
                return false;
            }
            Came::Nothing if self.since.elapsed() >= within => {
                refuse(&self.stream, &no_view());
                return false;
            }
            Came::Nothing => {}
        }
        true
    }

    fn read(&mut self) -> Came {
        let room = (MOST_REQUEST + 1).saturating_sub(self.line.len());
        let read = (&self.stream).take(room as u64).read_to_end(&mut self.line);
        if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            return match serde_json::from_slice::<Request>(&self.line[..end]) {
                Ok(Request { so_far: true, .. }) => Came::SoFar,
                Ok(_) => Came::Wrong(no_view()),
                Err(why) => Came::Wrong(format!("not a request: {why}")),
            };
        }
        if self.line.len() > MOST_REQUEST {
            return Came::Wrong(format!("bad request: it is longer than {MOST_REQUEST} bytes"));
        }
        match read {
            Err(error) if is_time_out(&error) => Came::Nothing,
            // It has closed its half in the middle of a line, or the connection.
            _ => Came::Gone,
        }
    }
}

/// What whoever wants to watch is told.
fn no_view() -> String {
    format!(
        "this is a recording, without a live view: `brickscope requests --attach {}` writes a run of what it has kept so \
         far, and prints its requests",
        std::process::id()
    )
}

fn refuse(stream: &UnixStream, why: &str) {
    // Who doesn't get it has gone.
    let _ = send_line(stream, &line_of_error(why));
}

/// A line is shorter than what a socket has room for.
fn send_line(stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    // SIGPIPE would end a program that doesn't ignore it.
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::empty();
    send(stream, line, flags)?;
    Ok(())
}

/// Asks the recording of a process for a run of what it has kept so far, and waits until that is written. Where the process has
/// no socket, those that it was started by are asked: `pid` may be that of the program.
///
/// # Errors
///
/// If there is no such process, it can't be asked, belongs to another user, or could not write the run.
pub fn ask_so_far(pid: u32) -> Result<SoFar, LiveError> {
    ask_or_above(pid, &parent_of, &mut |pid| to_process(pid, &mut ask_so_far_at))
}

/// Asks a process, or else those above it.
fn ask_or_above(
    pid: u32,
    parent_of: &dyn Fn(u32) -> Option<u32>,
    ask: &mut dyn FnMut(u32) -> Result<SoFar, LiveError>,
) -> Result<SoFar, LiveError> {
    let asked = ask(pid);
    // A socket without a listener may be of a process that had the same number.
    let Err(LiveError::NotPublishing { .. } | LiveError::NobodyListens(_)) = asked else {
        return asked;
    };
    let parents = std::iter::successors(parent_of(pid), |pid| parent_of(*pid)).take(MOST_PARENTS);
    // The first process may be one, as in a container; before it there is none.
    for parent in parents.filter(|pid| *pid > 0) {
        match ask(parent) {
            Err(
                LiveError::NotPublishing { .. }
                | LiveError::NobodyListens(_)
                | LiveError::OtherUser { .. }
                | LiveError::NoProcess(_),
            ) => {}
            found => return found,
        }
    }
    asked
}

/// The process that started one, where the system tells.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, in brackets, which may have spaces: the state, then the parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Asks the recording that listens on the socket at `path`, like [`ask_so_far`].
///
/// # Errors
///
/// As for [`ask_so_far`].
pub fn ask_so_far_at(path: &Path) -> Result<SoFar, LiveError> {
    ask(to_socket(path)?, path, ANSWER_WITHIN)
}

fn ask(stream: UnixStream, path: &Path, within: Duration) -> Result<SoFar, LiveError> {
    let name = path.display().to_string();
    let request = Request { so_far: true, ..Request::default() };
    let mut line = serde_json::to_vec(&request)
        .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
    line.push(b'\n');
    // One that refuses whoever comes may have closed it: it has said why.
    let sent = send_line(&stream, &line);
    let mut timed = Timed::new(stream);
    timed.wait_until(Instant::now() + within);
    let mut messages = Messages::new(BufReader::new(timed));
    match messages.next() {
        Ok(Some(Message::SoFar(so_far))) => Ok(so_far),
        Ok(Some(Message::Error(why))) => Err(LiveError::Refused(why)),
        Ok(Some(_)) => Err(LiveError::Refused(
            "this is a live view, which keeps nothing: `brickscope top --attach` watches it"
                .to_owned(),
        )),
        Ok(None) => {
            let cause = sent.err().unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it answered")
            });
            Err(io_error(name)(cause))
        }
        Err(LiveError::Io { cause, .. }) if is_time_out(&cause) => {
            let why = format!("no answer came within {within:?}");
            Err(io_error(name)(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::super::timed::tests::dripping;
    use super::*;

    fn recording() -> (Recording, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recording = Recording::begin_at(&folder.path().join("a.sock")).expect("it listens");
        // However late a client's thread gets a processor.
        recording.within = Duration::from_secs(3600);
        (recording, folder)
    }

    fn so_far() -> SoFar {
        SoFar { folder: PathBuf::from("/runs/one-so-far-1"), passes: 7 }
    }

    /// Looks until somebody asks.
    fn wait(recording: &mut Recording) {
        while !recording.look() {
            thread::yield_now();
        }
    }

    /// What a client that sends these bytes is told, once they are looked at.
    fn told(recording: &mut Recording, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(recording.path()).expect("it listens");
        stream.write_all(bytes).expect("there is room");
        assert!(!recording.look(), "it asks for nothing");
        assert!(recording.clients.is_empty(), "it is closed");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("it is text");
        told
    }

    #[test]
    fn all_that_ask_get_the_run_that_was_written() {
        let (mut recording, _folder) = recording();
        assert!(!recording.look(), "nobody asks");
        let clients = [(); 3].map(|()| {
            let path = recording.path().to_owned();
            thread::spawn(move || ask_so_far_at(&path))
        });
        while recording.clients.iter().filter(|client| client.has_asked).count() < 3 {
            wait(&mut recording);
        }
        recording.answer(Ok(&so_far()));
        assert!(!recording.look(), "all have their answer");
        for client in clients {
            assert_eq!(client.join().expect("no panic").expect("an answer"), so_far());
        }
        let path = recording.path().to_owned();
        let client = thread::spawn(move || ask_so_far_at(&path));
        wait(&mut recording);
        recording.answer(Err("the disk is full"));
        let why = client.join().expect("no panic").expect_err("it is full").to_string();
        assert!(why.ends_with("the disk is full"), "{why}");
    }

    #[test]
    fn who_sends_anything_else_is_told_why_and_holds_nobody_up() {
        let (mut recording, _folder) = recording();
        for (bytes, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], "not a request"),
            (&b"\xff\xfe\n"[..], "not a request"),
            (&b"{\"rate\":2}\n"[..], "without a live view"),
            (&[b'x'; MOST_REQUEST + 1][..], "longer than 1024 bytes"),
        ] {
            let told = told(&mut recording, bytes);
            assert!(told.starts_with("{\"error\":\"") && told.contains(why), "{told}");
        }
        // Who watches waits for a hello.
        recording.within = Duration::ZERO;
        assert!(told(&mut recording, b"").contains("brickscope requests --attach"));
        assert!(told(&mut recording, b"{\"so_f").contains("without a live view"));
        // Who goes away is forgotten.
        recording.within = REQUEST_WITHIN;
        drop(UnixStream::connect(recording.path()).expect("it listens"));
        assert!(!recording.look());
        assert!(recording.clients.is_empty());
    }

    #[test]
    fn of_more_clients_than_there_is_room_for_the_others_are_refused() {
        let (mut recording, _folder) = recording();
        let connect = || UnixStream::connect(recording.path()).expect("it listens");
        let all: Vec<UnixStream> = (0..MOST_CLIENTS + 2).map(|_| connect()).collect();
        assert!(!recording.look());
        assert!(!recording.look());
        assert_eq!(recording.clients.len(), MOST_CLIENTS);
        for mut stream in &all[MOST_CLIENTS..] {
            let mut told = String::new();
            stream.read_to_string(&mut told).expect("it is text");
            assert!(told.contains("there are already 16 who ask"), "{told}");
        }
        let path = recording.path().to_owned();
        drop(recording);
        assert!(!path.exists());
        for mut stream in &all[..MOST_CLIENTS] {
            let mut told = String::new();
            stream.read_to_string(&mut told).expect("it is text");
            assert!(told.contains("the program has ended"), "{told}");
        }
    }

    #[test]
    fn who_came_since_the_last_look_is_told_that_the_program_has_ended() {
        let (recording, _folder) = recording();
        let stream = UnixStream::connect(recording.path()).expect("it listens");
        drop(recording);
        let why = ask(stream, Path::new("a.sock"), ANSWER_WITHIN).expect_err("none").to_string();
        assert!(why.contains("the program has ended"), "{why}");
    }

    /// In a container the recorder is often the first process, which the system says was started by 0.
    #[test]
    fn those_above_a_program_are_asked_up_to_the_first_process() {
        let all = [(9, 4), (4, 1), (1, 0)];
        let parent_of = |pid: u32| all.into_iter().find(|of| of.0 == pid).map(|of| of.1);
        for recorder in [9, 4, 1, 7] {
            let mut asked = Vec::new();
            let found = ask_or_above(9, &parent_of, &mut |pid| {
                asked.push(pid);
                match pid {
                    pid if pid == recorder => Ok(so_far()),
                    // Left by one that had this number.
                    9 => Err(LiveError::NobodyListens(PathBuf::from("9.sock"))),
                    pid => Err(LiveError::NotPublishing { pid, path: PathBuf::new() }),
                }
            });
            if recorder == 7 {
                assert_eq!(asked, [9, 4, 1]);
                assert!(matches!(found, Err(LiveError::NobodyListens(_))));
            } else {
                assert_eq!((asked.last(), found.ok()), (Some(&recorder), Some(so_far())));
            }
        }
    }

    #[test]
    fn a_recording_that_does_not_answer_is_given_up() {
        let soon = Duration::from_millis(50);
        let said = |stream| ask(stream, Path::new("a.sock"), soon).expect_err("none").to_string();
        assert_eq!(said(dripping(b"{")), "a.sock: no answer came within 50ms");
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(said(here), "a.sock: no answer came within 50ms");
        drop(there);
    }

    #[test]
    fn the_process_that_started_another_is_known() {
        if Path::new("/proc/self/stat").exists() {
            assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
        }
    }
}
