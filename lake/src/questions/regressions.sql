-- Commits, the slowest first: the median speed of each commit beside that of the one before it on the same machine, by the time at which it was first seen there, with the 99 % interval that sessions give.
WITH speed AS (
  SELECT r.machine AS machine, r.commit AS commit, r.run_id AS run_id, coalesce(r.session, r.date) AS session,
    s.tokens_per_second AS rate,
    concat(r.engine, ' ', coalesce(r.model, ''), ' ', coalesce(r.quant, ''), ' ',
      coalesce(r.backend, ''), ' ', coalesce(r.device, ''), ' ', cast(coalesce(r.threads, 0) AS VARCHAR(20)), ' ',
      CASE WHEN r.is_profiled = false THEN 'without profiler ' ELSE '' END, s.test, ' ', s.work) AS work
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.commit IS NOT NULL
    AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
),
placed AS (
  SELECT machine, work, commit, rate,
    row_number() OVER (PARTITION BY machine, work, commit ORDER BY rate, run_id) AS place,
    count(*) OVER (PARTITION BY machine, work, commit) AS n
  FROM speed
),
-- Of all runs, whatever the work: an old commit that is measured again in another test stays old.
first_seen AS (
  SELECT machine, commit, min(created_s) AS since_s
  FROM runs
  WHERE commit IS NOT NULL
  GROUP BY machine, commit
),
of_commit AS (
  SELECT machine, work, commit, avg(rate) AS rate, max(n) AS n
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2
  GROUP BY machine, work, commit
),
-- Sessions are what varies: runs of one resemble each other.
of_session AS (
  SELECT machine, work, commit, session, avg(ln(rate)) AS log_rate
  FROM speed
  GROUP BY machine, work, commit, session
),
off_mean AS (
  SELECT machine, work, commit, log_rate - avg(log_rate) OVER (PARTITION BY machine, work, commit) AS off
  FROM of_session
),
of_sessions AS (
  SELECT machine, work, commit, count(*) AS sessions, sum(off * off) AS squares
  FROM off_mean
  GROUP BY machine, work, commit
),
of_work AS (
  SELECT machine, work, sum(sessions) - count(*) AS degrees, sum(squares) AS squares
  FROM of_sessions
  GROUP BY machine, work
),
-- Several tests of one session are off alike, so they are no more degrees of freedom than the one with most.
varied AS (
  SELECT machine, sum(degrees) AS repeats, max(degrees) AS degrees, sum(squares) AS squares
  FROM of_work
  GROUP BY machine
),
-- What a session of each machine varies by; of a machine that repeated nothing, as of all machines.
noise AS (
  SELECT machine, degrees,
    CASE WHEN repeats > 0 THEN squares / repeats
      WHEN sum(repeats) OVER () > 0 THEN sum(squares) OVER () / sum(repeats) OVER () END AS variance
  FROM varied
),
steps AS (
  SELECT o.machine AS machine, o.work AS work, o.commit AS commit, o.rate AS rate, o.n AS n, s.sessions AS sessions,
    lag(s.sessions) OVER (PARTITION BY o.machine, o.work ORDER BY f.since_s, o.commit) AS sessions_before,
    lag(o.commit) OVER (PARTITION BY o.machine, o.work ORDER BY f.since_s, o.commit) AS commit_before,
    lag(o.rate) OVER (PARTITION BY o.machine, o.work ORDER BY f.since_s, o.commit) AS rate_before
  FROM of_commit o
  JOIN first_seen f ON f.machine = o.machine AND f.commit = o.commit
  JOIN of_sessions s ON s.machine = o.machine AND s.work = o.work AND s.commit = o.commit
),
-- For the same reason errors of a machine's tests add up; those of machines do so as squares.
of_machine AS (
  SELECT t.commit AS commit, t.commit_before AS commit_before, count(*) AS tests, sum(t.n) AS n,
    sum(ln(t.rate / t.rate_before)) AS logs, min(t.rate / t.rate_before) AS worst, max(t.rate / t.rate_before) AS best,
    max(v.degrees) AS degrees, sum(sqrt(v.variance * (1e0 / t.sessions + 1e0 / t.sessions_before))) AS error
  FROM steps t
  JOIN noise v ON v.machine = t.machine
  WHERE t.rate_before > 0
  GROUP BY t.machine, t.commit, t.commit_before
),
of_all AS (
  SELECT commit, commit_before, sum(tests) AS tests, sum(n) AS n, exp(sum(logs) / sum(tests)) AS speed,
    min(worst) AS worst, max(best) AS best, sum(degrees) AS degrees,
    sqrt(sum(error * error)) / sum(tests) AS error
  FROM of_machine
  GROUP BY commit, commit_before
),
-- Student's t for 99 %, for so many degrees of freedom or more.
half AS (
  SELECT commit, commit_before, tests, n, speed, worst, best,
    CASE WHEN degrees < 1 THEN NULL ELSE
      error
      * CASE WHEN degrees = 1 THEN 63.66 WHEN degrees = 2 THEN 9.93 WHEN degrees = 3 THEN 5.85
        WHEN degrees = 4 THEN 4.61 WHEN degrees < 7 THEN 4.04 WHEN degrees < 10 THEN 3.5
        WHEN degrees < 20 THEN 3.17 ELSE 2.85 END
    END AS half
  FROM of_all
)
SELECT
  commit,
  commit_before,
  tests AS machines_and_tests,
  n AS measurements,
  speed AS speed_beside_before,
  speed * exp(-half) AS low,
  speed * exp(half) AS high,
  CASE
    WHEN half IS NULL THEN 'not known: too few sessions'
    WHEN speed * exp(half) < 1 THEN 'slower'
    WHEN speed * exp(-half) > 1 THEN 'faster'
    ELSE 'not distinguishable'
  END AS than_before,
  worst,
  best
FROM half
ORDER BY 5, 1
