"""Shapes of queries that both engines answer: what follows SELECT, a line each."""

from __future__ import annotations

SHAPES = """
    a.id FROM both.t a WHERE i > (SELECT avg(b.i) FROM both.u b WHERE b.h = a.h)
    a.id, (SELECT count(*) FROM both.u b WHERE b.i = a.i) AS n FROM both.t a
    a.id, (SELECT coalesce(max(b.d), 1) FROM both.u b WHERE b.i = a.i AND b.id > a.id) AS n
        FROM both.t a
    a.i FROM both.t a WHERE EXISTS (SELECT 1 FROM both.u b WHERE b.s = a.s) OR i > 3
    a.id, EXISTS (SELECT 1 FROM both.u b WHERE b.s = a.s AND b.id <> a.id) AS e FROM both.t a
    count(*) AS n FROM both.t WHERE EXISTS (SELECT count(*) FROM both.u WHERE id < 0)
    count(*) AS n FROM both.t WHERE NOT EXISTS (SELECT i FROM both.u GROUP BY i HAVING i > 99)
    id FROM both.t WHERE i IN (SELECT i FROM both.u GROUP BY i HAVING count(*) > 1)
    id FROM both.t WHERE i IN (SELECT h FROM both.u UNION SELECT i FROM both.u WHERE i > 2)
    a.id FROM both.t a WHERE NOT EXISTS (SELECT 1 FROM both.u b WHERE b.i = a.i
        AND EXISTS (SELECT 1 FROM both.t c WHERE c.id = b.id))
    id, (SELECT i FROM both.u WHERE id = 12) AS one FROM both.t
    id, (SELECT i FROM both.u) AS several FROM both.t
    i, count(*) AS n FROM both.t GROUP BY i HAVING count(*) > (SELECT count(*) / 20 FROM both.u)
    i, count(*) AS n FROM both.t GROUP BY i HAVING i IN (SELECT i FROM both.u WHERE i IS NOT NULL)
    i, sum(sum(h)) OVER (ORDER BY i) AS a, rank() OVER (ORDER BY sum(h) DESC) AS r
        FROM both.t GROUP BY i
    n, i, avg(sum(h)) OVER (PARTITION BY n) AS a, lag(sum(h)) OVER (ORDER BY n, i) AS l FROM both.t
        GROUP BY n, i
    y, z, grouping(y) + grouping(z) AS g, rank() OVER (PARTITION BY grouping(y) + grouping(z),
        CASE WHEN grouping(z) = 0 THEN y END ORDER BY sum(h)) AS r FROM both.t
        GROUP BY ROLLUP (y, z) ORDER BY g DESC, CASE WHEN g = 0 THEN y END, r
    y, z, count(*) AS n FROM both.t GROUP BY CUBE (y, z) HAVING count(*) > 2
    y, z, rank() OVER (PARTITION BY z ORDER BY sum(d) / sum(h)) AS r FROM both.t WHERE h > 0
        GROUP BY y, z
    y, z, count(*) AS n FROM both.t GROUP BY ROLLUP (y, z)
        ORDER BY grouping(y) + grouping(z), CASE WHEN grouping(z) = 0 THEN y END, y, z
    y, z, count(*) AS n, grouping(y) AS g FROM both.t GROUP BY CUBE (y, z)
        ORDER BY grouping_id(y, z), y, z, n
    i FROM both.t INTERSECT ALL SELECT h FROM both.u
    i, s FROM both.t EXCEPT ALL SELECT h, s FROM both.u
    n FROM both.t INTERSECT ALL SELECT n FROM both.u
    n, f FROM both.t EXCEPT ALL SELECT n, f FROM both.u WHERE id > 10
    k FROM both.t EXCEPT ALL SELECT d FROM both.u
    c FROM both.t INTERSECT ALL SELECT v FROM both.u
    x FROM both.t INTERSECT ALL SELECT f FROM both.u ORDER BY 1
    y, z, sum(h) AS q FROM both.t GROUP BY ROLLUP (y, z) ORDER BY coalesce(q, 0) + 1, y, z
    a.id, c.id AS k FROM both.t a, both.u b JOIN both.t c ON c.id = a.id AND b.i = c.i
    a.id, c.s FROM (both.t a LEFT JOIN both.u b ON a.i = b.i) JOIN both.t c ON c.id = a.id
    a.id, b.id AS k FROM both.t a JOIN both.u b
        ON (a.i = b.i AND a.h > 1) OR (a.i = b.i AND b.h < 2)
    a.id FROM both.t a JOIN both.u b ON a.id = b.id AND b.i <> 0 AND a.l / b.i > 1
    id FROM both.t WHERE i <> 0 AND l / i > 1 AND 10 DIV i < 6
    id FROM both.t WHERE i = 0 OR i IS NULL OR l / i > 1
    id FROM both.t WHERE (i <> 0 AND l / i > 1) OR l / h > 2
    q.v FROM (SELECT id, l / nullif(i, 0) AS v FROM both.t) q WHERE q.v > 0
    q.v FROM (SELECT i, l / i AS v FROM both.t WHERE i <> 0) q WHERE q.v > 0
    sum(l / i) FILTER (WHERE i <> 0) AS s FROM both.t
    CAST('1.00' AS decimal(38,2)) = CAST('1.004' AS decimal(38,6)) AS a,
        CAST('1.00' AS decimal(38,2)) < CAST('1.006' AS decimal(38,6)) AS b
    (CASE WHEN z THEN st ELSE named_struct('a', l, 'b', s) END) AS a,
        coalesce(ms, map('a', l)) AS b, if(z, array(st), array(named_struct('a', k, 'b', s))) AS c
        FROM both.t
    a.id, q.b FROM both.t a LEFT JOIN (SELECT named_struct('c', 'x', 'e', array(1)) AS b, id
        FROM both.u) q ON a.id = q.id
    upper(t.st.b), transform(t.ai, x -> x + st.a) FROM both.t t
    -k AS a, abs(k) AS b, bround(k, 0) AS c, bround(k, 3) AS e, round(f, 1) AS g, nanvl(f, x) AS h,
        nanvl(f, f) AS j FROM both.t
    try_add(abs(l), h DIV nullif(i, 0)) AS a, try_multiply(l, 9223372036854775807L) AS b,
        try_subtract(y, y * 2) AS c, try_add(x, f) AS e FROM both.t
    z, count(DISTINCT n, f) AS a, count(DISTINCT s, i, z) AS b FROM both.t GROUP BY z
    id, i IN (SELECT l FROM both.u) AS a FROM both.t WHERE d NOT IN (SELECT k FROM both.u
        WHERE k IS NOT NULL) OR k IN (SELECT h FROM both.u) OR m IN (SELECT e FROM both.u)
    coalesce(CAST(NULL AS decimal(38,19)), CAST('1.5' AS decimal(38,9))) AS a,
        CASE WHEN true THEN CAST('1.123456789012345' AS decimal(38,19))
        ELSE CAST(1 AS decimal(38,9)) END AS b
    CAST('1.123456789012345' AS decimal(38,19)) AS a
        UNION ALL SELECT CAST('1.123456789012345' AS decimal(38,2)) AS a
    CAST('1.123456789012345' AS decimal(38,19)) IN (CAST('1.12' AS decimal(38,2)),
        CAST('5' AS decimal(38,9))) AS a
    id, k = CAST(k AS decimal(38,5)) AS a, k < l * CAST('1.00005' AS decimal(38,20)) AS b
        FROM both.t
    id, k BETWEEN CAST('0.51234' AS decimal(38,2)) AND CAST('3.5' AS decimal(38,12)) AS b
        FROM both.t
    k * 2 AS a, k / 3 AS b, k + d AS c, k * d AS e, d / i AS f FROM both.t WHERE i <> 0
    i, sum(k) AS a, avg(k) AS b, sum(d) / sum(k) AS c, sum(k) * 0.001 AS e FROM both.t GROUP BY i
    d / 3 / 3 AS a, (k % 3) / nullif(d % 3, 0) AS b FROM both.t WHERE abs(k) < 1000
    avg(sum(d)) OVER () AS a, sum(sum(d)) OVER () AS b FROM both.t GROUP BY i
    e + INTERVAL 1 MONTH AS a, e - INTERVAL '30' DAY AS b, EXTRACT(year FROM e) AS c FROM both.t
    CAST(s AS int) AS a FROM both.t WHERE s IN ('1', '2')
    a.id, id AS k FROM both.t a SEMI JOIN both.u b ON a.i = b.i ORDER BY 1 LIMIT 3
    id FROM both.t ORDER BY (1) DESC LIMIT 3
    -i AS q, d, s FROM both.t ORDER BY q + 1, id LIMIT 2
    greatest(f, CAST('-0.0' AS float)) AS a FROM both.t
    least(CAST('-0.0' AS float), f) AS a FROM both.t
    y % CAST(-1 AS tinyint) AS a, CAST('-9223372036854775808' AS bigint) % -1 AS b FROM both.t
    a.id, EXISTS (SELECT 1 FROM both.u b WHERE b.s = a.s) AS hit FROM both.t a ORDER BY NOT hit, id
    i, max((SELECT max(b.h) FROM both.u b WHERE b.i = a.i)) AS m FROM both.t a GROUP BY i
    i, count(*) AS n FROM both.t a GROUP BY i
        HAVING count(*) > (SELECT count(*) FROM both.u b WHERE b.i = a.i)
    count(*) OVER (PARTITION BY ai, st) AS n FROM both.t
    id, sum(i) OVER w AS a, rank() OVER (w) AS b FROM both.t WINDOW w AS (PARTITION BY z ORDER BY h)
    id, ntile(4) OVER (ORDER BY id) AS a, percent_rank() OVER (PARTITION BY z ORDER BY i) AS b,
        cume_dist() OVER (PARTITION BY z ORDER BY i) AS c FROM both.t
    id, ntile(100) OVER (PARTITION BY z ORDER BY id) AS a,
        percent_rank() OVER (PARTITION BY id ORDER BY i) AS b FROM both.t
    * FROM (SELECT id, i, s FROM both.t) a FULL JOIN (SELECT id, h FROM both.u
        WHERE id > 20) b USING (id)
    id, a.id AS q, b.id AS r FROM both.t a RIGHT JOIN (SELECT id, h FROM both.u
        WHERE id > 20) b USING (id, h)
    id, count(*) AS n FROM both.t a FULL JOIN (SELECT id, h FROM both.u
        WHERE id > 20) b USING (id) GROUP BY id ORDER BY id
    * FROM (SELECT id, i FROM both.t) a JOIN (SELECT id, h FROM both.u) b USING (id)
        JOIN (SELECT id, s FROM both.t) c USING (id)
    a.*, c.* FROM (SELECT id, i FROM both.t) a JOIN (SELECT id, h FROM both.u) b USING (id)
        JOIN (SELECT id, s FROM both.t) c USING (id)
    * FROM (SELECT id, i FROM both.t) a NATURAL JOIN (SELECT h, id FROM both.u) b
    * FROM (SELECT id, i, h FROM both.t) a NATURAL LEFT JOIN (SELECT h, id, s FROM both.u) b
    * FROM (SELECT id, i, h FROM both.t) a NATURAL FULL JOIN (SELECT h, id, s FROM both.u) b
    z, i, count(*) AS n, sum(h) AS s FROM both.t GROUP BY ALL ORDER BY ALL
    upper(s) AS u, max(d) - min(d) AS r FROM both.t GROUP BY ALL HAVING max(d) > 1
        ORDER BY ALL DESC NULLS LAST
    count(*) AS n, sum(i) AS s FROM both.t WHERE id < 0 GROUP BY ALL
    f, x, i + 1 AS j, count(*) AS n FROM both.t GROUP BY ALL
    d, k, id FROM both.t ORDER BY ALL LIMIT 5
    id FROM range(9) ORDER BY id DESC LIMIT 2
    id, n2, v2 FROM both.t UNPIVOT INCLUDE NULLS (v2 FOR n2 IN (s)) ORDER BY id DESC LIMIT 2
    i, s FROM both.t WHERE id < 9 UNION ALL SELECT h, 'k' FROM both.u ORDER BY ALL DESC
    id, i FROM both.t QUALIFY row_number() OVER (PARTITION BY i ORDER BY id DESC) = 1
    id, rank() OVER (PARTITION BY z ORDER BY i) AS r FROM both.t WHERE h > 0
        QUALIFY r < 3 AND i <> 0 ORDER BY id
    DISTINCT z FROM both.t QUALIFY sum(i) OVER (PARTITION BY z ORDER BY id) > 2
    q.i, count(*) AS n FROM (SELECT * FROM both.t QUALIFY lag(i) OVER (ORDER BY id) <> i) q
        JOIN both.u u ON q.i = u.i GROUP BY q.i
    * FROM (SELECT z, s, i FROM both.t) PIVOT (sum(i) FOR s IN ('a', 'b' AS bb, 'no'))
    * FROM (SELECT z, i, d, f FROM both.t) AS q PIVOT (count(d) AS n, max(f) FOR i IN (0, 1, -1))
        AS p WHERE p.`1_n` IS NOT NULL
    * FROM (SELECT z, i, s, d FROM both.t) PIVOT (max(s) AS m, sum(d) AS n FOR i IN (1, 77))
    * FROM (SELECT id, i, s FROM both.t) PIVOT (collect_list(s) FOR i IN (1, 77))
    * FROM (SELECT s, i FROM both.t WHERE id < 0) PIVOT (count(i) FOR s IN ('a', 'b'))
    * FROM (SELECT id, i, h * 1 AS h2 FROM both.t) UNPIVOT (v FOR n IN (i, i AS again))
    * FROM (SELECT id, s, concat(s, 'x') AS t FROM both.t) UNPIVOT INCLUDE NULLS
        (v FOR n IN (s, t AS `T t`)) AS u
    id, w2 FROM both.t LATERAL VIEW explode(array(i, id)) x AS w2 WHERE w2 > 3
    id, pos, col, q.v FROM both.t LATERAL VIEW posexplode(array(s, 'k')) x
        LATERAL VIEW explode(array(col, 'z')) q AS v WHERE id < 9
    i, sum(w2) AS s FROM both.t LATERAL VIEW OUTER explode(CASE WHEN i > 1 THEN array(i, 1) END)
        x AS w2 GROUP BY i
    x.*, id FROM both.t LATERAL VIEW inline(array(struct(i, s))) x AS a, b
    id, TRY_CAST(i AS tinyint) AS a, TRY_CAST(l AS int) AS b, TRY_CAST(x AS int) AS c,
        TRY_CAST(s AS int) AS e, TRY_CAST(s AS boolean) AS g, TRY_CAST(d AS smallint) AS j,
        TRY_CAST(i AS string) AS o, TRY_CAST(k AS decimal(3,1)) AS p FROM both.t
    z, approx_count_distinct(i) AS a, approx_count_distinct(s) AS b, approx_count_distinct(e) AS c,
        approx_count_distinct(l) AS g, approx_count_distinct(z) AS j FROM both.t GROUP BY z
    approx_count_distinct(id * 7919) AS n FROM range(200)
    /*+ BROADCAST(b) */ a.id FROM both.t a JOIN both.u b ON a.id = b.id
    id, regexp_instr(s, '[a-c]', 0) AS a, mask(concat('Ab-', i), otherChar => '*') AS b FROM both.t
    CASE WHEN id < 0 THEN raise_error('no') ELSE id END AS a FROM both.t
"""
WITHS = (
    "WITH c AS (SELECT i, count(*) AS n FROM both.t GROUP BY i), d AS (SELECT * FROM c WHERE n > 2)"
    " SELECT a.i, b.n, d.n AS m FROM c a JOIN c b ON a.n = b.n LEFT JOIN d ON d.i = a.i",
    "WITH c AS (SELECT 1 AS x) SELECT * FROM (WITH c AS (SELECT 2 AS x) SELECT * FROM c) q, c",
)
