-- The slowest machines: each one's median speed beside the median machine's, on the same work (of two in the middle the geometric mean). The 95 % interval is of what sessions vary by, not of what machines of a kind vary by: whether one is slow, `lake verdict` says. Machines of one place are not distinguishable.
WITH speed AS (
  SELECT r.machine AS machine, r.run_id AS run_id, coalesce(r.session, r.date) AS session,
    s.tokens_per_second AS rate,
    concat(r.engine, ' ', coalesce(r.model, ''), ' ', coalesce(r.quant, ''), ' ',
      coalesce(r.backend, ''), ' ', coalesce(r.device, ''), ' ', cast(coalesce(r.threads, 0) AS VARCHAR(20)), ' ',
      CASE WHEN r.is_profiled = false THEN 'without profiler ' ELSE '' END, s.test, ' ', s.work) AS work
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
),
-- A median is the mean of the one or two in the middle: not all engines have the same function for it.
placed AS (
  SELECT machine, work, rate,
    row_number() OVER (PARTITION BY machine, work ORDER BY rate, run_id) AS place,
    count(*) OVER (PARTITION BY machine, work) AS n
  FROM speed
),
of_machine AS (
  SELECT machine, work, avg(rate) AS rate
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2
  GROUP BY machine, work
),
among AS (
  SELECT machine, work, rate,
    row_number() OVER (PARTITION BY work ORDER BY rate, machine) AS place,
    count(*) OVER (PARTITION BY work) AS machines
  FROM of_machine
),
in_middle AS (
  SELECT machine, work, rate
  FROM among
  WHERE 2 * place >= machines AND 2 * place <= machines + 2 AND machines > 1
),
-- The geometric mean of two lies between them as their ratios do, so that these are on either side of 1 in all works.
middle AS (
  SELECT work, exp(avg(ln(rate))) AS rate
  FROM in_middle
  GROUP BY work
),
-- Sessions are what varies: runs of one resemble each other.
of_session AS (
  SELECT machine, work, session, avg(ln(rate)) AS log_rate
  FROM speed
  GROUP BY machine, work, session
),
-- Squares of what is off the mean: those of whole values would cancel, and leave what the order of the rows gives.
off_mean AS (
  SELECT machine, work, log_rate - avg(log_rate) OVER (PARTITION BY machine, work) AS off
  FROM of_session
),
of_sessions AS (
  SELECT machine, work, count(*) AS sessions, sum(off * off) AS squares
  FROM off_mean
  GROUP BY machine, work
),
varied AS (
  SELECT v.machine AS machine, sum(v.sessions) - count(*) AS degrees, sum(v.squares) AS squares
  FROM of_sessions v
  JOIN middle m ON m.work = v.work
  GROUP BY v.machine
),
-- What a session of each machine varies by; of a machine that repeated nothing, as of all machines.
noise AS (
  SELECT machine, degrees,
    CASE WHEN degrees > 0 THEN squares / degrees
      WHEN sum(degrees) OVER () > 0 THEN sum(squares) OVER () / sum(degrees) OVER () END AS variance
  FROM varied
),
error_of AS (
  SELECT s.machine AS machine, s.work AS work, s.sessions AS sessions, n.degrees AS degrees,
    n.variance / s.sessions AS variance
  FROM of_sessions s
  JOIN noise n ON n.machine = s.machine
),
-- The middle has an error of its own, which among few machines is as large as a machine's.
error_of_middle AS (
  SELECT i.work AS work, sum(e.variance) / (count(*) * count(*)) AS variance
  FROM in_middle i
  JOIN error_of e ON e.machine = i.machine AND e.work = i.work
  GROUP BY i.work
),
-- Each work counts alike in the speed, however many sessions it has, and so in the error. A machine in the middle is
-- beside itself there, for which this is too wide rather than too narrow.
error_beside AS (
  SELECT e.machine AS machine, sum(e.sessions) AS sessions, max(e.degrees) AS degrees,
    sum(e.variance + m.variance) / (count(*) * count(*)) AS variance
  FROM error_of e
  JOIN error_of_middle m ON m.work = e.work
  GROUP BY e.machine
),
-- Student's t for 95 %, for so many degrees of freedom or more.
half AS (
  SELECT machine, sessions,
    CASE WHEN degrees < 1 THEN NULL ELSE
      sqrt(variance)
      * CASE WHEN degrees = 1 THEN 12.71 WHEN degrees = 2 THEN 4.31 WHEN degrees = 3 THEN 3.19
        WHEN degrees = 4 THEN 2.78 WHEN degrees < 7 THEN 2.58 WHEN degrees < 10 THEN 2.37
        WHEN degrees < 20 THEN 2.23 ELSE 2.1 END
    END AS half
  FROM error_beside
),
beside AS (
  SELECT o.machine AS machine, count(*) AS tests,
    exp(avg(ln(o.rate / m.rate))) AS speed
  FROM of_machine o
  JOIN middle m ON m.work = o.work
  GROUP BY o.machine
),
between_ AS (
  SELECT b.machine AS machine, b.tests AS tests, b.speed AS speed,
    h.sessions AS sessions, b.speed * exp(-h.half) AS low, b.speed * exp(h.half) AS high
  FROM beside b
  JOIN half h ON h.machine = b.machine
)
SELECT
  b.machine AS machine,
  max(b.tests) AS tests,
  max(b.sessions) AS sessions,
  max(b.speed) AS speed_beside_median_machine,
  max(b.low) AS low,
  max(b.high) AS high,
  CASE WHEN max(b.low) IS NULL THEN NULL ELSE 1 + sum(CASE WHEN other.high < b.low THEN 1 ELSE 0 END) END AS place,
  CASE
    WHEN max(b.low) IS NULL THEN 'not known: too few sessions'
    WHEN max(b.high) < 1 THEN 'below the median'
    WHEN max(b.low) > 1 THEN 'above the median'
    ELSE 'not distinguishable'
  END AS interval_is
FROM between_ b
CROSS JOIN between_ other
GROUP BY b.machine
ORDER BY 4, 1
