# What a program of a web service asks for first.
require "json"; require "set"; require "net/http"; require "openssl"; require "erb"; require "csv"; require "logger"
puts "ready " + JSON.generate(ERB.new("<%= OpenSSL::Digest::SHA256.hexdigest('a')[0, 8] %>").result => Set[1, 2].to_a)
