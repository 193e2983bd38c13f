-- Since which commit requests wait longer: percentiles of the time to the first token and of the time between two tokens by commit and machine, each beside the commit before it there, with the 99 % interval that sessions give. The load is what was recorded: it has to be alike.
WITH asked AS (
  SELECT q.run_id AS run_id, min(CASE WHEN q.is_of_client THEN 1 ELSE 0 END) AS of_client, count(*) AS requests,
    max(q.arrived_ns) - min(q.arrived_ns) AS arriving_ns
  FROM requests q
  GROUP BY q.run_id
),
run AS (
  SELECT r.run_id AS run_id, r.machine AS machine, r.commit AS commit, coalesce(r.session, r.date) AS session,
    a.requests AS requests, a.arriving_ns AS arriving_ns,
    concat(r.engine, CASE WHEN r.model IS NULL THEN '' ELSE concat(' ', r.model) END,
      CASE WHEN r.quant IS NULL THEN '' ELSE concat(' ', r.quant) END,
      CASE WHEN r.backend IS NULL THEN '' ELSE concat(' ', r.backend) END,
      CASE WHEN r.device IS NULL THEN '' ELSE concat(' ', r.device) END,
      CASE WHEN r.threads IS NULL THEN '' ELSE concat(' ', cast(r.threads AS VARCHAR(20)), ' threads') END,
      ', as the ', CASE WHEN a.of_client = 1 THEN 'client' ELSE 'server' END, ' saw them') AS work
  FROM runs r
  JOIN asked a ON a.run_id = r.run_id
  CROSS JOIN params p
  WHERE r.commit IS NOT NULL AND r.date >= p.since AND r.date <= p.until AND (p.model = '' OR r.model = p.model)
),
load_ AS (
  SELECT machine, work, commit, sum(requests) AS requests, count(DISTINCT session) AS sessions,
    1e9 * (sum(requests) - count(*)) / nullif(sum(arriving_ns), 0) AS arrived_per_s
  FROM run
  GROUP BY machine, work, commit
),
-- First tokens are there one by one, and what lies between tokens as a histogram, to within 0.8 %.
wait AS (
  SELECT q.run_id AS run_id, 'first token' AS what, q.to_first_token_ns AS from_ns, q.to_first_token_ns AS last_ns,
    1 AS n
  FROM requests q
  WHERE q.to_first_token_ns IS NOT NULL
  UNION ALL
  SELECT d.run_id AS run_id, d.name AS what, d.from_ns AS from_ns, d.to_ns - 1 AS last_ns, d.spans AS n
  FROM durations d
  WHERE d.kind = 'request'
),
counted AS (
  SELECT r.machine AS machine, r.work AS work, w.what AS what, r.commit AS commit, r.session AS session,
    w.from_ns AS from_ns, w.last_ns AS last_ns, sum(w.n) AS n
  FROM wait w
  JOIN run r ON r.run_id = w.run_id
  GROUP BY r.machine, r.work, w.what, r.commit, r.session, w.from_ns, w.last_ns
),
running AS (
  SELECT machine, work, what, commit, session, from_ns, last_ns,
    sum(n) OVER (PARTITION BY machine, work, what, commit ORDER BY from_ns, session
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS below,
    sum(n) OVER (PARTITION BY machine, work, what, commit) AS of_all,
    sum(n) OVER (PARTITION BY machine, work, what, commit, session ORDER BY from_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS below_in_session,
    sum(n) OVER (PARTITION BY machine, work, what, commit, session) AS of_session
  FROM counted
),
-- By nearest rank; each percentile from so many times on that one lies above it with 99 % certainty.
percentile AS (
  SELECT 50 AS nth, 7 AS least
  UNION ALL
  SELECT 99 AS nth, 459 AS least
),
of_commit AS (
  SELECT r.machine AS machine, r.work AS work, r.what AS what, c.nth AS nth, r.commit AS commit,
    min(CASE WHEN r.of_all >= c.least AND 100 * r.below >= c.nth * r.of_all THEN r.from_ns END) AS from_ns,
    min(CASE WHEN r.of_all >= c.least AND 100 * r.below >= c.nth * r.of_all THEN r.last_ns END) AS last_ns
  FROM running r
  CROSS JOIN percentile c
  GROUP BY r.machine, r.work, r.what, c.nth, r.commit
),
-- Sessions are what varies: requests of one wait in the same queue.
of_session AS (
  SELECT r.machine AS machine, r.work AS work, r.what AS what, c.nth AS nth, r.commit AS commit, r.session AS session,
    ln(min(r.from_ns + r.last_ns) / 2e0) AS log_ns
  FROM running r
  CROSS JOIN percentile c
  WHERE r.of_session >= c.least AND 100 * r.below_in_session >= c.nth * r.of_session AND r.last_ns > 0
  GROUP BY r.machine, r.work, r.what, c.nth, r.commit, r.session
),
off_mean AS (
  SELECT machine, work, what, nth, commit,
    log_ns - avg(log_ns) OVER (PARTITION BY machine, work, what, nth, commit) AS off
  FROM of_session
),
of_sessions AS (
  SELECT machine, work, what, nth, commit, count(*) AS sessions, sum(off * off) AS squares
  FROM off_mean
  GROUP BY machine, work, what, nth, commit
),
-- What a session of the machine varies by, whatever the commit.
noise AS (
  SELECT machine, work, what, nth, sum(sessions) - count(*) AS degrees, sum(squares) AS squares
  FROM of_sessions
  GROUP BY machine, work, what, nth
),
-- Of all runs, whatever the work: an old commit that is measured again stays old.
first_seen AS (
  SELECT machine, commit, min(created_s) AS since_s
  FROM runs
  WHERE commit IS NOT NULL
  GROUP BY machine, commit
),
placed AS (
  SELECT o.machine AS machine, o.work AS work, o.what AS what, o.nth AS nth, o.commit AS commit, f.since_s AS since_s,
    o.from_ns AS from_ns, o.last_ns AS last_ns, s.sessions AS sessions,
    row_number() OVER (PARTITION BY o.machine, o.work, o.what, o.nth ORDER BY f.since_s, o.commit) AS place
  FROM of_commit o
  JOIN first_seen f ON f.machine = o.machine AND f.commit = o.commit
  LEFT JOIN of_sessions s ON s.machine = o.machine AND s.work = o.work AND s.what = o.what AND s.nth = o.nth
    AND s.commit = o.commit
),
-- Student's t for 99 %, for so many degrees of freedom or more.
steps AS (
  SELECT o.machine AS machine, o.work AS work, o.what AS what, o.nth AS nth, o.commit AS commit, o.since_s AS since_s,
    o.from_ns AS from_ns, o.last_ns AS last_ns, b.commit AS commit_before,
    CASE WHEN b.last_ns > 0 THEN (o.from_ns + o.last_ns) / 1e0 / (b.from_ns + b.last_ns) END AS ratio,
    CASE WHEN b.last_ns > 0 THEN o.from_ns / 1e0 / b.last_ns END AS least,
    CASE WHEN b.from_ns > 0 THEN o.last_ns / 1e0 / b.from_ns END AS most,
    CASE WHEN n.degrees > 0 THEN
      sqrt(n.squares / n.degrees * (1e0 / o.sessions + 1e0 / b.sessions))
      * CASE WHEN n.degrees = 1 THEN 63.66 WHEN n.degrees = 2 THEN 9.93 WHEN n.degrees = 3 THEN 5.85
        WHEN n.degrees = 4 THEN 4.61 WHEN n.degrees < 7 THEN 4.04 WHEN n.degrees < 10 THEN 3.5
        WHEN n.degrees < 20 THEN 3.17 ELSE 2.85 END
    END AS half
  FROM placed o
  LEFT JOIN placed b ON b.machine = o.machine AND b.work = o.work AND b.what = o.what AND b.nth = o.nth
    AND b.place = o.place - 1
  LEFT JOIN noise n ON n.machine = o.machine AND n.work = o.work AND n.what = o.what AND n.nth = o.nth
)
SELECT
  t.machine AS machine,
  t.commit AS commit,
  concat(t.what, ' p', cast(t.nth AS VARCHAR(20))) AS what,
  l.requests AS requests,
  l.arrived_per_s AS arrived_per_s,
  l.sessions AS sessions,
  (t.from_ns + t.last_ns) / 2e6 AS wait_ms,
  t.ratio AS times_before,
  t.least * exp(-t.half) AS low,
  t.most * exp(t.half) AS high,
  CASE
    WHEN t.commit_before IS NULL THEN NULL
    WHEN t.ratio IS NULL THEN 'not known: too few requests'
    WHEN t.half IS NULL OR t.most IS NULL THEN 'not known: too few sessions'
    WHEN t.least * exp(-t.half) > 1 THEN 'longer'
    WHEN t.most * exp(t.half) < 1 THEN 'shorter'
    ELSE 'not distinguishable'
  END AS than_before,
  t.work AS work
FROM steps t
JOIN load_ l ON l.machine = t.machine AND l.work = t.work AND l.commit = t.commit
ORDER BY t.machine, t.work, t.what DESC, t.nth, t.since_s, t.commit
