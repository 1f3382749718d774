function fail(request_handle, reason)
  request_handle:logErr(reason)
  request_handle:respond({[":status"] = "403"}, "Forbidden")
end

function envoy_on_request(request_handle)
  local ssl = request_handle:streamInfo():downstreamSslConnection()
  if ssl == nil then
    fail(request_handle, "No TLS connection")
    return
  end

  local subjectPeerCert = ssl:subjectPeerCertificate()
  if subjectPeerCert == nil then
    fail(request_handle, "No subject peer certificate")
    return
  end

  -- Try to match against any expected subject (exact string comparison)
  local matchFound = false

  for _, expectedSubject in ipairs(expectedSubjects) do
    if subjectPeerCert == expectedSubject then
      matchFound = true
      request_handle:logInfo("Certificate subject validated successfully")
      break
    end
  end

  if not matchFound then
    fail(request_handle, string.format("Certificate subject validation failed: subject (%s) not in allowed list", subjectPeerCert))
    return
  end
end
