-- Returns a text as it may be stored and shown: without credentials and control characters, cut to
-- p_limit, and on one line unless p_lines. The patterns are those of failure.py. Only a little more
-- of the text is searched than can be shown: in SQL the time grows with the square of the length. A
-- backslash is a plain character, whatever the session's settings are.
create or replace function {schema}.redact(p_text text, p_limit int, p_lines boolean default false)
returns text
language sql immutable parallel safe
set standard_conforming_strings = on set search_path = pg_catalog, pg_temp
as $$
  select
    case
      when length(clean.text) <= p_limit then clean.text
      else left(clean.text, p_limit - 1) || '…'
    end
  from (
    select
      '(?:passw(?:or)?d|passphrase|pwd|secret|(?:api|access|private)[_-]?key|token)'
        || '(?:[_-]?(?:access[_-]?)?key)?[0-9]{0,3}' as name,
      '[a-z]{0,2}"(?:[^"\\]|\\.)*"?'
        || '|[a-z]{0,2}''(?:[^''\\]|\\.)*''?'
        || '|\\"(?:[^"\\]|\\[^"])*(?:\\")?'
        || '|[\w.]{1,100}\((?:"[^"]*"|''[^'']*'')\)' as quoted,
      '[^\s,;&)}\]"''][^\s,;&)}\]]*' as bare,
      '(?=[^\s,;&)}\]"'']*[0-9+/=_$!@#%^~]|[^\s,;&)}\]"'']{20})[^\s,;&)}\]"''][^\s,;&)}\]]*'
        as secretlike
  ) of
  cross join lateral (
    select
      '(?!(?:none|null|true|false)(?!\w)|\*\*\*(?:[\s:,;&)}\]]|$)|(?:[a-z]+[_-])*'
        || of.name || '\s{0,3}[:=]\s)' as value
  ) no
  cross join lateral (
    select regexp_replace(
      left(p_text, 4 * p_limit + 4096),
      '(://)([^\s/?#]*@|[^\s:/?#@]*:(?![0-9]+[/?#])[^\s@"'']*@)',
      '\1***@', 'g'
    ) as text
  ) a
  cross join lateral (
    select regexp_replace(
      a.text,
      '\m(bearer|basic) '
        || '(?!(?:authenticat|authori[sz]|credential)[a-z]{0,5}(?![\w~+/=-])|(?:[a-z]+[_-])*'
        || of.name || '\s{0,3}[:=])[a-z0-9._~+/=-]{8,}',
      '\1 ***', 'gi'
    ) as text
  ) b
  cross join lateral (
    select regexp_replace(
      b.text,
      '(authorization(?:\\?["''])?\s{0,3}[:=]\s{0,3}(?:\\?["''])?)'
        || '((?:token|api-?key|key|digest|negotiate|ntlm|hmac|jwt|oauth) )?(?:'
        || of.secretlike || ')',
      '\1\2***', 'gi'
    ) as text
  ) c
  cross join lateral (
    select regexp_replace(
      c.text,
      '((?<!unexpected )(?<!expected )' || of.name || ')((?:\\?["''])?\s{0,3}:\s{0,3})'
        || no.value || '(?:' || of.quoted || '|' || of.secretlike || ')',
      '\1\2***', 'gi'
    ) as text
  ) d
  cross join lateral (
    select regexp_replace(
      d.text,
      '(' || of.name || ')(\s{0,3}={1,2}(?!=)\s{0,3})'
        || no.value || '(?:' || of.quoted || '|' || of.bare || ')',
      '\1\2***', 'gi'
    ) as text
  ) e
  cross join lateral (
    select
      case
        when p_lines
          then regexp_replace(
            e.text,
            '[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]', '�', 'g'
          )
        else btrim(regexp_replace(
          e.text,
          '[\u0001-\u0020\u007f-\u00a0\u2028-\u202e\u2066-\u2069]+', ' ', 'g'
        ))
      end as text
  ) clean
$$;
